package cli

import (
	"strings"
	"testing"
)

func TestCheckEnvironment(t *testing.T) {
	known := append([]string{"HOSTD_DATA_DIR"}, Variables...)
	for _, fine := range []string{
		"PATH=/bin", "HOSTD_ADDR=x", "HOSTD_DATA_DIR=", "HOSTD_TEST_ANY=1", "MY_HOSTD_X=1",
		"HOSTD_SERVICE_HOST=10.0.0.1", "HOSTD_SERVICE_PORT=7070", "HOSTD_SERVICE_PORT_API=7070", "HOSTD_PORT=tcp://10.0.0.1:7070",
		"HOSTD_PORT_7070_TCP_ADDR=10.0.0.1", "HOSTD_PEERS_SERVICE_HOST=10.0.0.2",
	} {
		if err := CheckEnvironment([]string{fine}, known); err != nil {
			t.Errorf("%s: %v", fine, err)
		}
	}
	for line, says := range map[string]string{
		"HOSTD_ADR=x":         "did you mean HOSTD_ADDR?",
		"HOSTD_DATADIR=/x":    "did you mean HOSTD_DATA_DIR?",
		"HOSTD_NOTHING_AT_=1": "HOSTD_NOTHING_AT_: unset it",
		"HOSTD_FOO=1":         "HOSTD_FOO: unset it",
		"HOSTD_TESTS=1":       "HOSTD_TESTS",
	} {
		err := CheckEnvironment([]string{"HOSTD_ADDR=x", line}, known)
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %s", line, err, says)
		}
	}
}
