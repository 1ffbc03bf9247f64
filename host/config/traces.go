package config

import (
	"fmt"
	"net/url"
	"strconv"
)

// TracesURL returns the URL to send spans to, or "" if none are sent. It adds the
// path of OTLP if otlp-endpoint has none.
func (c *Config) TracesURL() string {
	u, err := url.Parse(c.OTLPEndpoint)
	if c.OTLPEndpoint == "" || err != nil {
		return ""
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = "/v1/traces"
	}
	return u.String()
}

func (c *Config) checkTraces(fault func(key, format string, args ...any)) {
	if c.OTLPEndpoint != "" {
		u, err := url.Parse(c.OTLPEndpoint)
		switch {
		case err != nil:
			fault("otlp-endpoint", "is not a URL: %w", err)
		case u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "":
			fault("otlp-endpoint", "must be a URL such as http://127.0.0.1:4318, got %q", u.Redacted())
		case u.User != nil:
			fault("otlp-endpoint", "must not contain credentials: put them into otlp-headers-file")
		}
	} else if c.OTLPHeadersFile != "" {
		fault("otlp-headers-file", "needs otlp-endpoint")
	} else if c.TraceRatio != 0 {
		fault("trace-ratio", "needs otlp-endpoint")
	}
	if !(c.TraceRatio >= 0 && c.TraceRatio <= 1) {
		fault("trace-ratio", "must be between 0 and 1, got %v", c.TraceRatio)
	}
}

func fraction(name, usage string, p *float64) Field {
	return Field{name, usage, "fraction", func(s string) error {
		v, err := strconv.ParseFloat(s, 64)
		if err != nil {
			return fmt.Errorf("%q is not a number such as 0.01", s)
		}
		*p = v
		return nil
	}, func() string { return strconv.FormatFloat(*p, 'f', -1, 64) }}
}
