package config_test

import (
	"maps"
	"strings"
	"testing"

	"github.com/hostd/hostd/host/config"
)

// TestExposedListenerNeedsProtection: a listener that other machines can reach needs
// TLS and authentication, or the flag for that listener. In the previous
// release, one flag covered both listeners. A configuration of that release
// remains valid, with a warning that names the new flag.
func TestExposedListenerNeedsProtection(t *testing.T) {
	const (
		plain, nobody, nodes, named = "without TLS", "do not have to authenticate", "nodes may connect to each other", "insecure-peers"
	)
	const peers = "peer-cert-file=c peer-key-file=k peer-ca-file=a"
	tls := map[string]string{"tls-cert-file": "c", "tls-key-file": "k"}
	known := map[string]string{"tls-cert-file": "c", "tls-key-file": "k", "auth": "required", "token-file": "t"}
	shown := map[string]string{"tls-cert-file": "c", "tls-key-file": "k", "tls-client-ca-file": "a", "tls-client-auth": "require"}
	local, every, far := "127.0.0.1:7070", "0.0.0.0:7070", "10.0.0.1:7070"
	for name, tt := range map[string]struct {
		with   map[string]string
		flags  string
		faults string // keys
		warns  []string
	}{
		"this machine alone":                      {flags: "listen=" + local},
		"flags without need":                      {flags: "listen=" + local + " insecure-listen=true insecure-peers=true"},
		"nothing guards either":                   {flags: "listen=" + every, faults: "listen peer-listen"},
		"nodes alone are let in":                  {flags: "listen=" + every + " insecure-peers=true", faults: "listen"},
		"as in the release before":                {flags: "listen=" + every + " insecure-listen=true", warns: []string{plain, nobody, nodes, named}},
		"as before, advertised":                   {flags: "listen=" + local + " advertise=" + far + " insecure-listen=true", warns: []string{plain, nobody, nodes, named}},
		"both are let in":                         {flags: "listen=" + every + " insecure-listen=true insecure-peers=true", warns: []string{plain, nobody, nodes}},
		"clients alone, nodes on this machine":    {flags: "listen=" + every + " peer-listen=127.0.0.1:0 insecure-listen=true", warns: []string{plain, nobody}},
		"a port for nodes that is new":            {flags: "listen=" + every + " peer-listen=" + every + " insecure-listen=true", faults: "peer-listen"},
		"an address for nodes that is new":        {flags: "listen=" + every + " peer-advertise=" + far + " insecure-listen=true", faults: "peer-advertise"},
		"nodes alone":                             {flags: "listen=" + local + " peer-listen=" + every + " insecure-peers=true", warns: []string{nodes}},
		"nodes alone, unguarded":                  {flags: "listen=" + local + " peer-listen=" + every, faults: "peer-listen"},
		"clients at an address of a proxy":        {flags: "listen=" + local + " advertise=" + far + " peer-advertise=127.0.0.1:0", faults: "advertise"},
		"TLS, and tokens":                         {with: known, flags: "listen=" + every + " peer-listen=127.0.0.1:0"},
		"TLS, and certificates":                   {with: shown, flags: "listen=" + every + " peer-listen=127.0.0.1:0"},
		"TLS, and nodes without":                  {with: known, flags: "listen=" + every, faults: "peer-listen"},
		"TLS, and nodes are let in":               {with: known, flags: "listen=" + every + " insecure-peers=true", warns: []string{nodes}},
		"TLS alone":                               {with: tls, flags: "listen=" + every + " insecure-peers=true", faults: "listen"},
		"TLS alone, let in":                       {with: tls, flags: "listen=" + every + " insecure-peers=true insecure-listen=true", warns: []string{nobody, nodes}},
		"TLS for who wants it":                    {with: known, flags: "tls-mode=allow listen=" + every + " insecure-peers=true", faults: "listen"},
		"TLS for who wants it, let in":            {with: known, flags: "tls-mode=allow listen=" + every + " insecure-peers=true insecure-listen=true", warns: []string{plain, nodes}},
		"tokens for who has one":                  {with: known, flags: "auth=allow listen=" + every + " insecure-peers=true", faults: "listen"},
		"tokens for who has one, let in":          {with: known, flags: "auth=allow listen=" + every + " insecure-peers=true insecure-listen=true", warns: []string{nobody, nodes}},
		"certificates for who has one":            {with: shown, flags: "tls-client-auth=optional listen=" + every + " insecure-peers=true", faults: "listen"},
		"TLS between nodes too":                   {with: known, flags: "listen=" + every + " peer-tls-mode=require " + peers},
		"TLS between nodes alone":                 {flags: "listen=" + every + " peer-tls-mode=require " + peers, faults: "listen"},
		"TLS between nodes, clients are let in":   {flags: "listen=" + every + " insecure-listen=true peer-tls-mode=require " + peers, warns: []string{plain, nobody}},
		"TLS between nodes that speak it":         {with: known, flags: "listen=" + every + " peer-tls-mode=allow " + peers, faults: "peer-listen"},
		"TLS between nodes that speak it, let in": {with: known, flags: "listen=" + every + " insecure-peers=true peer-tls-mode=allow " + peers, warns: []string{nodes}},
		"tokens without TLS":                      {flags: "auth=required token-file=t listen=" + every + " insecure-peers=true", faults: "listen"},
		"tokens without TLS, nodes on this host":  {flags: "auth=required token-file=t listen=" + every + " insecure-listen=true peer-listen=127.0.0.1:0", warns: []string{plain}},
	} {
		flags := map[string]string{}
		maps.Copy(flags, tt.with)
		for f := range strings.FieldsSeq(tt.flags) {
			key, value, _ := strings.Cut(f, "=")
			flags[key] = value
		}
		c, err := config.Load(config.Sources{Flags: flags})
		if tt.faults != "" {
			if err == nil {
				t.Errorf("%s: taken", name)
				continue
			}
			text := strings.Replace("\n"+err.Error(), "\nconfiguration: ", "\n", 1)
			lines := strings.Split(text[1:], "\n")
			if len(lines) != len(strings.Fields(tt.faults)) {
				t.Errorf("%s: %v", name, err)
			}
			for _, key := range strings.Fields(tt.faults) {
				flag := "--insecure-listen"
				if strings.HasPrefix(key, "peer-") {
					flag = "--insecure-peers"
				}
				if !strings.Contains(text, "\n"+key+": ") || !strings.Contains(text, flag) {
					t.Errorf("%s: %s and %s are not named: %v", name, key, flag, err)
				}
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		warns := append(c.ClientsUnguarded(), c.PeersUnguarded()...)
		if len(warns) != len(tt.warns) {
			t.Errorf("%s: warns of %q, wanted %q", name, warns, tt.warns)
			continue
		}
		for i, want := range tt.warns {
			if !strings.Contains(warns[i], want) {
				t.Errorf("%s: warns of %q, wanted %q", name, warns[i], want)
			}
		}
	}
}

func TestOriginsOfPages(t *testing.T) {
	for origin, says := range map[string]string{
		"https://app.example":      "",
		"http://localhost:3000":    "",
		"https://app.example/":     "without a path",
		"https://app.example/page": "without a path",
		"app.example":              "such as https://app.example",
		"HTTPS://app.example":      "lower case",
		"https://user@app.example": "must contain origins",
		"ftp://app.example":        "must contain origins",
		"https://app.example?q":    "must contain origins",
		"null":                     "must contain origins",
		"*":                        "every web page",
		"https://*.app.example":    "must contain origins",
	} {
		c := config.Default()
		c.AllowOrigins = []string{origin}
		err := c.Validate()
		if (err != nil) != (says != "") || err != nil && !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", origin, err, says)
		}
	}
	c := config.Default()
	c.AllowOrigins, c.Auth, c.TokenFile = []string{"*"}, config.AuthRequired, "tokens"
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
}
