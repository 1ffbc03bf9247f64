package config

import (
	"net/url"
)

// tokenFileKey is the only key without an environment variable, because the
// command line uses HOSTD_TOKEN_FILE for its own token.
const tokenFileKey = "token-file"

// CertName says which name in a client certificate identifies the caller.
type CertName string

// The values of Config.AuthCertName. CertNone means that certificates do not
// identify callers.
const (
	CertNone   CertName = ""
	CertCommon CertName = "cn"
	CertURI    CertName = "san-uri"
	CertDNS    CertName = "san-dns"
)

// ChecksCallers reports whether the node checks credentials of callers.
func (c *Config) ChecksCallers() bool { return c.Auth != AuthNone }

// IdentifiesCallers reports whether the configuration has a source of
// credentials. Without one, only the tokens that the cluster stores identify callers.
func (c *Config) IdentifiesCallers() bool {
	return c.TokenFile != "" || c.OIDCIssuer != "" || c.AuthCertName != CertNone || c.AuthBootstrapFile != ""
}

// checkAuth rejects configurations that look as if callers were authenticated
// although they are not. Whether any credential can be valid also depends on the
// tokens that the cluster stores, so the node checks that later.
func (c *Config) checkAuth(fault func(key, format string, args ...any)) {
	switch c.Auth {
	case AuthNone:
		for _, k := range []struct{ key, value string }{{tokenFileKey, c.TokenFile}, {"auth-cert-name", string(c.AuthCertName)}, {"oidc-issuer", c.OIDCIssuer}, {"jwt-keys-file", c.JWTKeysFile}, {"auth-bootstrap-file", c.AuthBootstrapFile}} {
			if k.value != "" {
				fault(k.key, "is set, but auth is none, so credentials are not checked; set auth to required or allow")
			}
		}
	case AuthAllow, AuthRequired:
	default:
		fault("auth", "must be %s, %s or %s, got %q", AuthNone, AuthAllow, AuthRequired, c.Auth)
	}
	switch c.AuthCertName {
	case CertNone:
	case CertCommon, CertURI, CertDNS:
		if c.ClientAuth() == ClientAuthNone {
			fault("auth-cert-name", "%s needs client certificates: set tls-client-ca-file", c.AuthCertName)
		}
	default:
		fault("auth-cert-name", "must be %s, %s or %s, got %q", CertCommon, CertURI, CertDNS, c.AuthCertName)
	}
	if c.OIDCIssuer == "" {
		if len(c.OIDCAuthorizedParties) > 0 {
			fault("oidc-authorized-parties", "needs oidc-issuer")
		}
		for _, k := range []struct{ key, value string }{{"oidc-audience", c.OIDCAudience}, {"jwt-keys-file", c.JWTKeysFile}} {
			if k.value != "" {
				fault(k.key, "needs oidc-issuer")
			}
		}
		return
	}
	if c.OIDCAudience == "" {
		fault("oidc-audience", "must be set with oidc-issuer: without it, a token that was issued for a different service would be accepted")
	}
	if c.OIDCNameClaim == "" {
		fault("oidc-name-claim", "must not be empty")
	}
	u, err := url.Parse(c.OIDCIssuer)
	if err != nil || u.Host == "" || u.Scheme != "https" && !(u.Scheme == "http" && (loopback(u.Host) || loopback(u.Host+":80"))) {
		fault("oidc-issuer", "must be an https URL, or an http URL with a loopback address, because the issuer decides who callers are; got %.128q", c.OIDCIssuer)
	}
}

// AuditLevel returns which calls the node records in its audit log.
func (c *Config) AuditLevel() Audit {
	switch {
	case c.Audit != "":
		return c.Audit
	case c.ChecksCallers():
		return AuditChanges
	}
	return AuditOff
}

// checkAudit rejects configurations that look as if calls were recorded although
// they are not.
func (c *Config) checkAudit(fault func(key, format string, args ...any)) {
	switch level := c.AuditLevel(); level {
	case AuditChanges, AuditAll:
	case AuditOff:
		if c.AuditFile != "" {
			fault("audit-file", "is set, but audit is off, so nothing is written; set audit to changes or all")
		}
	default:
		fault("audit", "must be %s, %s or %s, got %q", AuditOff, AuditChanges, AuditAll, level)
	}
	if c.AuditFailure != AuditDenyChanges && c.AuditFailure != AuditContinue {
		fault("audit-failure", "must be %s or %s, got %q", AuditDenyChanges, AuditContinue, c.AuditFailure)
	}
}
