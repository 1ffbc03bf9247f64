package config

// TLSMode says whether clients, or other nodes, speak TLS to a node.
type TLSMode string

// The values of Config.TLSMode and Config.PeerTLSMode. None is TLSRequire for
// clients where there is a certificate, TLSOff otherwise.
const (
	TLSOff     TLSMode = "off"
	TLSAllow   TLSMode = "allow" // with it or without, on one port
	TLSRequire TLSMode = "require"
)

// TLSClientAuth says whether clients show a certificate.
type TLSClientAuth string

// The values of Config.TLSClientAuth. None is ClientAuthOptional where there
// are authorities, ClientAuthNone otherwise.
const (
	ClientAuthNone     TLSClientAuth = "none"
	ClientAuthOptional TLSClientAuth = "optional" // what is shown must be good
	ClientAuthRequire  TLSClientAuth = "require"
)

// TLS is whether clients speak TLS.
func (c *Config) TLS() TLSMode {
	switch {
	case c.TLSMode != "":
		return c.TLSMode
	case c.TLSCertFile != "":
		return TLSRequire
	}
	return TLSOff
}

// ClientAuth is whether clients show a certificate.
func (c *Config) ClientAuth() TLSClientAuth {
	switch {
	case c.TLSClientAuth != "":
		return c.TLSClientAuth
	case c.TLSClientCAFile != "":
		return ClientAuthOptional
	}
	return ClientAuthNone
}

// checkTLS refuses what does not belong together. Certificates may be named
// while the mode is off: they are put in place before they are used.
func (c *Config) checkTLS(fault func(key, format string, args ...any)) {
	mode, auth := c.TLS(), c.ClientAuth()
	switch mode {
	case TLSOff, TLSAllow, TLSRequire:
	default:
		fault("tls-mode", "is %q, must be %s, %s or %s", mode, TLSOff, TLSAllow, TLSRequire)
	}
	switch auth {
	case ClientAuthNone, ClientAuthOptional, ClientAuthRequire:
	default:
		fault("tls-client-auth", "is %q, must be %s, %s or %s", auth, ClientAuthNone, ClientAuthOptional, ClientAuthRequire)
	}
	if c.TLSCertFile != "" && c.TLSKeyFile == "" {
		fault("tls-key-file", "is missing beside tls-cert-file")
	}
	if c.TLSCertFile == "" && c.TLSKeyFile != "" {
		fault("tls-cert-file", "is missing beside tls-key-file")
	}
	if mode != TLSOff && c.TLSCertFile == "" {
		fault("tls-mode", "is %s, which needs a tls-cert-file and a tls-key-file", mode)
	}
	if c.TLSClientCAFile != "" && c.TLSCertFile == "" {
		fault("tls-client-ca-file", "is given, and there is no tls-cert-file: clients show certificates over TLS only")
	}
	if auth == ClientAuthNone && c.TLSClientCAFile != "" {
		fault("tls-client-auth", "is %s beside a tls-client-ca-file, whose certificates nobody would ask for", auth)
	}
	if auth != ClientAuthNone && c.TLSClientCAFile == "" {
		fault("tls-client-auth", "is %s, which needs a tls-client-ca-file", auth)
	}
	if auth == ClientAuthRequire && mode != TLSRequire {
		fault("tls-client-auth", "is %s and tls-mode is %s: who speaks without TLS shows no certificate; use %s until tls-mode is %s", auth, mode, ClientAuthOptional, TLSRequire)
	}
}

// PeerTLS is whether nodes speak TLS to each other.
func (c *Config) PeerTLS() TLSMode {
	if c.PeerTLSMode == "" {
		return TLSOff
	}
	return c.PeerTLSMode
}

// checkPeerTLS is checkTLS for other nodes, which show certificates on both
// sides: all files are needed.
func (c *Config) checkPeerTLS(fault func(key, format string, args ...any)) {
	mode := c.PeerTLS()
	if mode != TLSOff && mode != TLSAllow && mode != TLSRequire {
		fault("peer-tls-mode", "is %q, must be %s, %s or %s", mode, TLSOff, TLSAllow, TLSRequire)
		return
	}
	files := []struct{ key, file string }{{"peer-cert-file", c.PeerCertFile}, {"peer-key-file", c.PeerKeyFile}, {"peer-ca-file", c.PeerCAFile}}
	some := mode != TLSOff || c.PeerCRLFile != ""
	for _, f := range files {
		some = some || f.file != ""
	}
	for _, f := range files {
		if some && f.file == "" {
			fault(f.key, "is missing: nodes that speak TLS to each other have a peer-cert-file, a peer-key-file and a peer-ca-file")
		}
	}
}
