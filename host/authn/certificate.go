package authn

import (
	"crypto/x509"
	"encoding/asn1"
	"net/http"

	"github.com/hostd/hostd/host/principal"
)

// CertName selects the name in a client's certificate that identifies its
// owner.
type CertName string

// Values of Options.CertName. With CertNone, certificates are not credentials.
const (
	CertNone   CertName = ""
	CertCommon CertName = "cn"      // the subject's common name
	CertURI    CertName = "san-uri" // the subject alternative name of type URI, such as spiffe://corp/team/a
	CertDNS    CertName = "san-dns" // the subject alternative name of type DNS
)

// clientCertificate returns the client's certificate of a request, verified by the client
// authorities; nil if there is none.
func clientCertificate(r *http.Request) *x509.Certificate {
	if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 || len(r.TLS.VerifiedChains[0]) == 0 {
		return nil
	}
	return r.TLS.VerifiedChains[0][0]
}

// identifyCertificate identifies the owner of a certificate. A certificate with several
// names of the selected kind is rejected, because authorities differ in which
// of them they verify.
func (a *Authenticator) identifyCertificate(c *x509.Certificate) (*Principal, *failure) {
	switch {
	case a.opts.NodeCert != nil && a.opts.NodeCert(c):
		return nil, failNodeCert
	case !a.opts.Now().Before(c.NotAfter): // the certificate was valid during the handshake
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

// commonName is the OID of the common name in a subject.
var commonName = asn1.ObjectIdentifier{2, 5, 4, 3}
