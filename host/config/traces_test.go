package config_test

import (
	"strings"
	"testing"

	"github.com/hostd/hostd/host/config"
)

// TestTracesNeedEndpoint: spans are sent only if an endpoint is set, and
// an invalid key is named in the error.
func TestTracesNeedEndpoint(t *testing.T) {
	for _, tt := range []struct {
		flags map[string]string
		url   string
		fault string
	}{
		{nil, "", ""},
		{map[string]string{"otlp-endpoint": "http://127.0.0.1:4318", "trace-ratio": "0.01"}, "http://127.0.0.1:4318/v1/traces", ""},
		{map[string]string{"otlp-endpoint": "https://c.example/"}, "https://c.example/v1/traces", ""},
		{map[string]string{"otlp-endpoint": "https://c.example/otlp", "trace-ratio": "1"}, "https://c.example/otlp", ""},
		{map[string]string{"otlp-endpoint": "127.0.0.1:4318"}, "", "otlp-endpoint"},
		{map[string]string{"otlp-endpoint": "grpc://c.example:4317"}, "", "otlp-endpoint"},
		{map[string]string{"otlp-endpoint": "http://me:secret@c.example"}, "", "otlp-endpoint"},
		{map[string]string{"otlp-endpoint": "http://c.example?x=1"}, "", "otlp-endpoint"},
		{map[string]string{"otlp-headers-file": "h"}, "", "otlp-headers-file"},
		{map[string]string{"trace-ratio": "0.5"}, "", "trace-ratio"},
		{map[string]string{"otlp-endpoint": "http://c.example", "trace-ratio": "1.01"}, "", "trace-ratio"},
		{map[string]string{"otlp-endpoint": "http://c.example", "trace-ratio": "-0.5"}, "", "trace-ratio"},
		{map[string]string{"otlp-endpoint": "http://c.example", "trace-ratio": "NaN"}, "", "trace-ratio"},
		{map[string]string{"otlp-endpoint": "http://c.example", "trace-ratio": "all"}, "", "trace-ratio"},
	} {
		c, err := config.Load(config.Sources{Flags: tt.flags})
		switch {
		case tt.fault == "" && (err != nil || c.TracesURL() != tt.url):
			t.Errorf("%v: %q, %v", tt.flags, c.TracesURL(), err)
		case tt.fault != "" && (err == nil || !strings.Contains(err.Error(), tt.fault+":")):
			t.Errorf("%v: the fault does not name %s: %v", tt.flags, tt.fault, err)
		case err != nil && strings.Contains(err.Error(), "secret"):
			t.Errorf("%v: a fault tells a password: %v", tt.flags, err)
		}
	}
}
