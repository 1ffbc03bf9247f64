package config_test

import (
	"strings"
	"testing"

	"github.com/hostd/hostd/host/config"
)

// Inconsistent TLS keys are rejected, and the error names the key.
func TestTLS(t *testing.T) {
	pair := map[string]string{"tls-cert-file": "c", "tls-key-file": "k"}
	with := func(more ...string) map[string]string {
		out := map[string]string{}
		for k, v := range pair {
			out[k] = v
		}
		for i := 0; i < len(more); i += 2 {
			out[more[i]] = more[i+1]
		}
		return out
	}
	for _, tt := range []struct {
		flags map[string]string
		mode  config.TLSMode
		auth  config.TLSClientAuth
		fault string
	}{
		{map[string]string{}, config.TLSOff, config.ClientAuthNone, ""},
		{with(), config.TLSRequire, config.ClientAuthNone, ""},
		{with("tls-client-ca-file", "a"), config.TLSRequire, config.ClientAuthOptional, ""},
		{with("tls-client-ca-file", "a", "tls-client-auth", "require"), config.TLSRequire, config.ClientAuthRequire, ""},
		{with("tls-mode", "off", "tls-client-ca-file", "a"), config.TLSOff, config.ClientAuthOptional, ""},
		{with("tls-mode", "allow", "tls-client-ca-file", "a"), config.TLSAllow, config.ClientAuthOptional, ""},
		{with("tls-mode", "on"), "", "", "tls-mode"},
		{with("tls-client-auth", "always"), "", "", "tls-client-auth"},
		{map[string]string{"tls-cert-file": "c"}, "", "", "tls-key-file"},
		{map[string]string{"tls-key-file": "k"}, "", "", "tls-cert-file"},
		{map[string]string{"tls-mode": "require"}, "", "", "tls-mode"},
		{map[string]string{"tls-mode": "allow"}, "", "", "tls-mode"},
		{map[string]string{"tls-client-ca-file": "a"}, "", "", "tls-client-ca-file"},
		{with("tls-client-ca-file", "a", "tls-client-auth", "none"), "", "", "tls-client-auth"},
		{with("tls-client-auth", "optional"), "", "", "tls-client-auth"},
		{with("tls-client-auth", "require"), "", "", "tls-client-auth"},
		{with("tls-mode", "allow", "tls-client-ca-file", "a", "tls-client-auth", "require"), "", "", "tls-client-auth"},
		{with("tls-mode", "off", "tls-client-ca-file", "a", "tls-client-auth", "require"), "", "", "tls-client-auth"},
		{with("auth", "required", "auth-cert-name", "cn"), "", "", "auth-cert-name"},
		{with("tls-client-ca-file", "a", "auth", "required", "auth-cert-name", "name"), "", "", "auth-cert-name"},
		{with("tls-client-ca-file", "a", "auth-cert-name", "cn"), "", "", "auth-cert-name"},
		{with("tls-client-ca-file", "a", "auth", "required", "auth-cert-name", "san-uri"), config.TLSRequire, config.ClientAuthOptional, ""},
		{with("tls-client-ca-file", "a", "auth", "required"), config.TLSRequire, config.ClientAuthOptional, ""},
		// Clients don't have to authenticate, and other nodes don't use TLS.
		{with("listen", "0.0.0.0:7070"), "", "", "listen"},
		{with("listen", "0.0.0.0:7070", "insecure-listen", "true"), config.TLSRequire, config.ClientAuthNone, ""},
	} {
		c, err := config.Load(config.Sources{Flags: tt.flags})
		if tt.fault != "" {
			if err == nil || !strings.Contains(err.Error(), tt.fault+": ") {
				t.Errorf("%v: %v, wanted a fault of %s", tt.flags, err, tt.fault)
			}
			continue
		}
		if err != nil || c.TLS() != tt.mode || c.ClientAuth() != tt.auth {
			t.Errorf("%v: %s, %s, %v, wanted %s, %s", tt.flags, c.TLS(), c.ClientAuth(), err, tt.mode, tt.auth)
		}
	}
}

// TestPeerTLS: all three files are required if peer TLS is on.
func TestPeerTLS(t *testing.T) {
	files := func(more ...string) map[string]string {
		out := map[string]string{"peer-cert-file": "c", "peer-key-file": "k", "peer-ca-file": "a"}
		for i := 0; i < len(more); i += 2 {
			out[more[i]] = more[i+1]
		}
		return out
	}
	for _, tt := range []struct {
		flags map[string]string
		mode  config.TLSMode
		fault string
	}{
		{map[string]string{}, config.TLSOff, ""},
		{files(), config.TLSOff, ""},
		{files("peer-tls-mode", "allow"), config.TLSAllow, ""},
		{files("peer-tls-mode", "require"), config.TLSRequire, ""},
		{files("peer-tls-mode", "always"), "", "peer-tls-mode"},
		{map[string]string{"peer-tls-mode": "require"}, "", "peer-cert-file"},
		{files("peer-tls-mode", "require", "peer-cert-file", ""), "", "peer-cert-file"},
		{files("peer-tls-mode", "allow", "peer-key-file", ""), "", "peer-key-file"},
		{files("peer-ca-file", ""), "", "peer-ca-file"},
	} {
		c, err := config.Load(config.Sources{Flags: tt.flags})
		if tt.fault != "" {
			if err == nil || !strings.Contains(err.Error(), tt.fault+": ") {
				t.Errorf("%v: %v, wanted a fault of %s", tt.flags, err, tt.fault)
			}
			continue
		}
		if err != nil || c.PeerTLS() != tt.mode {
			t.Errorf("%v: %s, %v, wanted %s", tt.flags, c.PeerTLS(), err, tt.mode)
		}
	}
}
