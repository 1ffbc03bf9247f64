package config

import (
	"net/url"
)

// tokenFileKey is the one key that has no environment variable: see Fields.
const tokenFileKey = "token-file"

// CertName says which name of a client's certificate is its bearer's.
type CertName string

// The values of Config.AuthCertName. None: certificates are no credential.
const (
	CertNone   CertName = ""
	CertCommon CertName = "cn"
	CertURI    CertName = "san-uri"
	CertDNS    CertName = "san-dns"
)

// Authenticated reports whether callers are asked who they are.
func (c *Config) Authenticated() bool { return c.Auth != AuthNone }

// KnowsCallers reports whether the configuration itself says who callers are.
// Without it only the tokens that the cluster keeps do.
func (c *Config) KnowsCallers() bool {
	return c.TokenFile != "" || c.OIDCIssuer != "" || c.AuthCertName != CertNone || c.AuthBootstrapFile != ""
}

// checkAuth refuses settings that look as if callers were authenticated when
// they are not. Whether anything says who callers are depends on the tokens
// that the cluster keeps, so that the node checks it.
func (c *Config) checkAuth(fault func(key, format string, args ...any)) {
	switch c.Auth {
	case AuthNone:
		for _, k := range []struct{ key, value string }{{tokenFileKey, c.TokenFile}, {"auth-cert-name", string(c.AuthCertName)}, {"oidc-issuer", c.OIDCIssuer}, {"jwt-keys-file", c.JWTKeysFile}, {"auth-bootstrap-file", c.AuthBootstrapFile}} {
			if k.value != "" {
				fault(k.key, "is given, but auth is none: nobody is asked for a credential; set auth to required or allow")
			}
		}
	case AuthAllow, AuthRequired:
	default:
		fault("auth", "is %q, must be %s, %s or %s", c.Auth, AuthNone, AuthAllow, AuthRequired)
	}
	switch c.AuthCertName {
	case CertNone:
	case CertCommon, CertURI, CertDNS:
		if c.ClientAuth() == ClientAuthNone {
			fault("auth-cert-name", "is %s, but clients show no certificates: give tls-client-ca-file", c.AuthCertName)
		}
	default:
		fault("auth-cert-name", "is %q, must be %s, %s or %s", c.AuthCertName, CertCommon, CertURI, CertDNS)
	}
	if c.OIDCIssuer == "" {
		if len(c.OIDCAuthorizedParties) > 0 {
			fault("oidc-authorized-parties", "is given without oidc-issuer")
		}
		for _, k := range []struct{ key, value string }{{"oidc-audience", c.OIDCAudience}, {"jwt-keys-file", c.JWTKeysFile}} {
			if k.value != "" {
				fault(k.key, "is given without oidc-issuer")
			}
		}
		return
	}
	if c.OIDCAudience == "" {
		fault("oidc-audience", "is empty: without it a token that its bearer got for another service would do here")
	}
	if c.OIDCNameClaim == "" {
		fault("oidc-name-claim", "is empty")
	}
	u, err := url.Parse(c.OIDCIssuer)
	if err != nil || u.Host == "" || u.Scheme != "https" && !(u.Scheme == "http" && (loopback(u.Host) || loopback(u.Host+":80"))) {
		fault("oidc-issuer", "is %.128q, must be a URL with https, or with http on a loopback address: who answers for the issuer says who callers are", c.OIDCIssuer)
	}
}

// AuditLevel is which calls the node keeps account of.
func (c *Config) AuditLevel() Audit {
	switch {
	case c.Audit != "":
		return c.Audit
	case c.Authenticated():
		return AuditChanges
	}
	return AuditOff
}

// checkAudit refuses what looks as if account were kept when it is not.
func (c *Config) checkAudit(fault func(key, format string, args ...any)) {
	switch level := c.AuditLevel(); level {
	case AuditChanges, AuditAll:
	case AuditOff:
		if c.AuditFile != "" {
			fault("audit-file", "is given, but audit is off: nothing is written; set audit to changes or all")
		}
	default:
		fault("audit", "is %q, must be %s, %s or %s", level, AuditOff, AuditChanges, AuditAll)
	}
	if c.AuditFailure != AuditDenyChanges && c.AuditFailure != AuditContinue {
		fault("audit-failure", "is %q, must be %s or %s", c.AuditFailure, AuditDenyChanges, AuditContinue)
	}
}
