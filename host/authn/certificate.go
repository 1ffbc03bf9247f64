package authn

import (
	"crypto/x509"
	"encoding/asn1"
	"net/http"

	"github.com/hostd/hostd/host/principal"
)

// CertName says which name of a client's certificate is its bearer's.
type CertName string

// The values of Options.CertName. None is no name: certificates are no
// credential then.
const (
	CertNone   CertName = ""
	CertCommon CertName = "cn"      // the subject's common name
	CertURI    CertName = "san-uri" // the alternative name that is a URI, such as spiffe://corp/team/a
	CertDNS    CertName = "san-dns" // the alternative name that is a DNS name
)

// shown is the certificate that the client of a request has shown and that was
// held to the authorities of clients; nil is none.
func shown(r *http.Request) *x509.Certificate {
	if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 || len(r.TLS.VerifiedChains[0]) == 0 {
		return nil
	}
	return r.TLS.VerifiedChains[0][0]
}

// certified says whom a certificate names. One that has several names of the
// kind names nobody: authorities differ in which of them they have checked.
func (a *Authenticator) certified(c *x509.Certificate) (*Principal, *failure) {
	switch {
	case a.opts.NodeCert != nil && a.opts.NodeCert(c):
		return nil, failNodeCert
	case !a.opts.Now().Before(c.NotAfter): // it was shown before
		return nil, failCertExpired
	}
	var names []string
	switch a.opts.CertName {
	case CertCommon:
		for _, n := range c.Subject.Names {
			if text, ok := n.Value.(string); ok && n.Type.Equal(commonName) {
				names = append(names, text)
			}
		}
	case CertURI:
		for _, u := range c.URIs {
			names = append(names, u.String())
		}
	case CertDNS:
		names = c.DNSNames
	}
	if len(names) != 1 || names[0] == "" || len(names[0]) > maxClaimBytes || unprintable(names[0]) {
		return nil, failCertName
	}
	p, err := principal.New(KindCertificate, names[0], nil)
	if err != nil {
		return nil, failCertName
	}
	return &Principal{Principal: p, Expires: c.NotAfter}, nil
}

// commonName is the attribute of a subject.
var commonName = asn1.ObjectIdentifier{2, 5, 4, 3}
