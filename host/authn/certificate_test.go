package authn

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"
)

// askWith sends a request over a connection with a client certificate; nil
// means none.
func (w *world) askWith(c *x509.Certificate, header ...string) (status int, who *Principal, text string) {
	r := httptest.NewRequest(http.MethodPost, somePath, strings.NewReader("{}"))
	r.Header.Set("Content-Type", "application/json")
	for _, h := range header {
		r.Header.Add("Authorization", h)
	}
	r.TLS = &tls.ConnectionState{}
	if c != nil {
		r.TLS.VerifiedChains = [][]*x509.Certificate{{c}}
		r.TLS.PeerCertificates = []*x509.Certificate{c}
	}
	answer := httptest.NewRecorder()
	w.Wrap(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { who = Of(r.Context()) }), func(remote string) string { return remote }).ServeHTTP(answer, r)
	return answer.Code, who, answer.Body.String()
}

// named returns a certificate with the given common names, URIs and host names.
func (w *world) named(commonNames, uris, hosts []string) *x509.Certificate {
	c := &x509.Certificate{DNSNames: hosts, NotAfter: w.clock.now().Add(time.Hour)}
	for _, n := range commonNames {
		c.Subject.Names = append(c.Subject.Names, pkix.AttributeTypeAndValue{Type: commonName, Value: n})
	}
	for _, u := range uris {
		parsed, err := url.Parse(u)
		if err != nil {
			panic(err)
		}
		c.URIs = append(c.URIs, parsed)
	}
	return c
}

// A certificate identifies its owner only by exactly one name of the configured
// kind. If a request has a token, the token identifies the caller.
func TestCertificateIdentifiesItsOwner(t *testing.T) {
	type names = []string
	for _, c := range []struct {
		by                  CertName
		common, uris, hosts names
		name, fault         string
	}{
		{by: CertCommon, common: names{"bob"}, uris: names{"spiffe://corp/a"}, hosts: names{"a.example"}, name: "bob"},
		{by: CertURI, common: names{"bob"}, uris: names{"spiffe://corp/a"}, hosts: names{"a.example"}, name: "spiffe://corp/a"},
		{by: CertDNS, common: names{"bob"}, uris: names{"spiffe://corp/a"}, hosts: names{"a.example"}, name: "a.example"},
		{by: CertCommon, uris: names{"spiffe://corp/a"}, fault: "does not identify the caller"},
		{by: CertCommon, common: names{""}, fault: "does not identify the caller"},
		{by: CertCommon, common: names{"bob", "admin"}, fault: "does not identify the caller"},
		{by: CertCommon, common: names{"bob\nadmin"}, fault: "does not identify the caller"},
		{by: CertCommon, common: names{strings.Repeat("b", maxClaimBytes+1)}, fault: "does not identify the caller"},
		{by: CertURI, common: names{"bob"}, fault: "does not identify the caller"},
		{by: CertURI, uris: names{"spiffe://corp/a", "spiffe://corp/b"}, fault: "does not identify the caller"},
		{by: CertDNS, hosts: names{"a.example", "b.example"}, fault: "does not identify the caller"},
		{by: CertCommon, common: names{"n1"}, uris: names{"node"}, fault: "belongs to a node"},
		{by: CertNone, common: names{"bob"}, fault: "requires a credential"},
	} {
		for _, anonymous := range []bool{false, true} {
			w := newWorld(t, anonymous)
			w.opts.CertName = c.by
			w.opts.NodeCert = func(c *x509.Certificate) bool { return len(c.URIs) > 0 && c.URIs[0].String() == "node" }
			shown := w.named(c.common, c.uris, c.hosts)
			status, who, text := w.askWith(shown)
			switch {
			case c.by == CertNone && anonymous:
				if status != 200 || who.Kind != KindAnonymous {
					t.Errorf("%+v counts: %d, %+v", c, status, who)
				}
			case c.fault != "" && (status != 401 || who != nil || !strings.Contains(text, c.fault)):
				t.Errorf("%+v, anonymous %t: %d, %+v, %s", c, anonymous, status, who, text)
			case c.fault == "" && (status != 200 || who.Kind != KindCertificate || who.Name != c.name || !who.Expires.Equal(shown.NotAfter)):
				t.Errorf("%+v, anonymous %t: %d, %+v, %s", c, anonymous, status, who, text)
			}
			if status, who, _ := w.askWith(shown, "Bearer "+w.good); status != 200 || who.Name != "ci" {
				t.Errorf("%+v, with a token: %d, %+v", c, status, who)
			}
			if status, _, _ := w.askWith(shown, "Bearer "+NewToken()); status != 401 {
				t.Errorf("%+v, with a wrong token: %d", c, status)
			}
			if status, _, _ := w.askWith(nil); anonymous != (status == 200) {
				t.Errorf("without a certificate, anonymous %t: %d", anonymous, status)
			}
		}
	}
}

// A connection may outlive the certificate of its handshake. Its requests and
// streams are rejected then.
func TestExpiredCertificateIsRejected(t *testing.T) {
	w := newWorld(t, false)
	w.opts.CertName = CertCommon
	shown := w.named([]string{"bob"}, nil, nil)
	p, fail := w.identifyCertificate(shown)
	if fail != nil {
		t.Fatal(fail.err)
	}
	ended := 0
	s := &session{principal: p}
	s.enter(func() { ended++ })
	w.streams.add(s)
	w.look(t.Context(), true)
	if ended != 0 {
		t.Error("a stream ends while its certificate is good")
	}
	w.clock.advance(time.Hour)
	if status, _, text := w.askWith(shown); status != 401 || !strings.Contains(text, "expired") {
		t.Errorf("an expired one: %d, %s", status, text)
	}
	w.look(t.Context(), false)
	if ended != 1 || s.leave() != failExpired {
		t.Errorf("a stream was ended %d times", ended)
	}
}
