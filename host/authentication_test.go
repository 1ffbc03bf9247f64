package host

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/hostd/hostd/host/config"
)

func TestSharedListenerIsWarnedAbout(t *testing.T) {
	for _, c := range []struct {
		auth config.Auth
		tls  config.TLSMode
		cert string
		warn bool
	}{
		{config.AuthNone, "", "", false},
		{config.AuthAllow, config.TLSAllow, "n1.crt", false},
		{config.AuthRequired, config.TLSOff, "", true},
		{config.AuthNone, config.TLSRequire, "n1.crt", true},
		{config.AuthNone, "", "n1.crt", true},
	} {
		var log bytes.Buffer
		warnShared(&config.Config{Auth: c.auth, TLSMode: c.tls, TLSCertFile: c.cert}, slog.New(slog.NewTextHandler(&log, nil)))
		if warned := strings.Contains(log.String(), "level=WARN"); warned != c.warn {
			t.Errorf("%+v: %s", c, log.String())
		}
	}
}
