package config

// TLSMode says whether clients, or other nodes, use TLS with a node.
type TLSMode string

// The values of Config.TLSMode and Config.PeerTLSMode. For clients, the empty value
// means TLSRequire if there is a certificate. Otherwise it means TLSOff.
const (
	TLSOff     TLSMode = "off"
	TLSAllow   TLSMode = "allow" // with or without TLS, on one port
	TLSRequire TLSMode = "require"
)

// TLSClientAuth says whether clients present a certificate.
type TLSClientAuth string

// The values of Config.TLSClientAuth. The empty value means ClientAuthOptional if
// tls-client-ca-file is set, and ClientAuthNone otherwise.
const (
	ClientAuthNone     TLSClientAuth = "none"
	ClientAuthOptional TLSClientAuth = "optional" // a certificate must be valid if presented
	ClientAuthRequire  TLSClientAuth = "require"
)

// TLS returns the TLS mode of clients.
func (c *Config) TLS() TLSMode {
	switch {
	case c.TLSMode != "":
		return c.TLSMode
	case c.TLSCertFile != "":
		return TLSRequire
	}
	return TLSOff
}

// ClientAuth returns whether clients present a certificate.
func (c *Config) ClientAuth() TLSClientAuth {
	switch {
	case c.TLSClientAuth != "":
		return c.TLSClientAuth
	case c.TLSClientCAFile != "":
		return ClientAuthOptional
	}
	return ClientAuthNone
}

// checkTLS rejects inconsistent keys. Certificates may be set while the mode is
// off, so that they can be installed before TLS is turned on.
func (c *Config) checkTLS(fault func(key, format string, args ...any)) {
	mode, auth := c.TLS(), c.ClientAuth()
	switch mode {
	case TLSOff, TLSAllow, TLSRequire:
	default:
		fault("tls-mode", "must be %s, %s or %s, got %q", TLSOff, TLSAllow, TLSRequire, mode)
	}
	switch auth {
	case ClientAuthNone, ClientAuthOptional, ClientAuthRequire:
	default:
		fault("tls-client-auth", "must be %s, %s or %s, got %q", ClientAuthNone, ClientAuthOptional, ClientAuthRequire, auth)
	}
	if c.TLSCertFile != "" && c.TLSKeyFile == "" {
		fault("tls-key-file", "must be set together with tls-cert-file")
	}
	if c.TLSCertFile == "" && c.TLSKeyFile != "" {
		fault("tls-cert-file", "must be set together with tls-key-file")
	}
	if mode != TLSOff && c.TLSCertFile == "" {
		fault("tls-mode", "%s needs tls-cert-file and tls-key-file", mode)
	}
	if c.TLSClientCAFile != "" && c.TLSCertFile == "" {
		fault("tls-client-ca-file", "needs tls-cert-file: clients present certificates only over TLS")
	}
	if auth == ClientAuthNone && c.TLSClientCAFile != "" {
		fault("tls-client-auth", "must not be %s if tls-client-ca-file is set, because the node would never ask for a certificate", auth)
	}
	if auth != ClientAuthNone && c.TLSClientCAFile == "" {
		fault("tls-client-auth", "%s needs tls-client-ca-file", auth)
	}
	if auth == ClientAuthRequire && mode != TLSRequire {
		fault("tls-client-auth", "%s does not work with tls-mode %s, because clients without TLS present no certificate; use %s until tls-mode is %s", auth, mode, ClientAuthOptional, TLSRequire)
	}
}

// PeerTLS returns the TLS mode between nodes.
func (c *Config) PeerTLS() TLSMode {
	if c.PeerTLSMode == "" {
		return TLSOff
	}
	return c.PeerTLSMode
}

// checkPeerTLS is like checkTLS, but for other nodes. Both sides present
// certificates, so all files are required.
func (c *Config) checkPeerTLS(fault func(key, format string, args ...any)) {
	mode := c.PeerTLS()
	if mode != TLSOff && mode != TLSAllow && mode != TLSRequire {
		fault("peer-tls-mode", "must be %s, %s or %s, got %q", TLSOff, TLSAllow, TLSRequire, mode)
		return
	}
	files := []struct{ key, file string }{{"peer-cert-file", c.PeerCertFile}, {"peer-key-file", c.PeerKeyFile}, {"peer-ca-file", c.PeerCAFile}}
	some := mode != TLSOff || c.PeerCRLFile != ""
	for _, f := range files {
		some = some || f.file != ""
	}
	for _, f := range files {
		if some && f.file == "" {
			fault(f.key, "must be set: TLS between nodes needs peer-cert-file, peer-key-file and peer-ca-file")
		}
	}
}
