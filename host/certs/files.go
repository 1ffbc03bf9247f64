package certs

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/hostd/hostd/host/files"
)

// maxFileBytes bounds the size of a file.
const maxFileBytes = 1 << 20

// Files are the paths of a listener's own certificate and of the authorities
// that it trusts.
type Files struct {
	Cert, Key string // PEM: the chain, leaf first, and its private key
	ClientCA  string // PEM: bundle of trusted authorities of clients or nodes; "" for none
	CRL       string // PEM or DER: revocation lists of these authorities; "" for none
}

// dirs returns the directories of the files without duplicates.
func (f Files) dirs() []string {
	var out []string
	for _, file := range []string{f.Cert, f.Key, f.ClientCA, f.CRL} {
		if dir := filepath.Dir(file); file != "" && !slices.Contains(out, dir) {
			out = append(out, dir)
		}
	}
	return out
}

// material is the parsed contents of the files. It is immutable.
type material struct {
	pair        tls.Certificate
	authorities []*x509.Certificate
	pool        *x509.CertPool // certificates of the trusted authorities; nil if there is no ClientCA
	pairSum     [sha256.Size]byte
	poolSum     [sha256.Size]byte
	revoked     revocations
}

// read reads and checks the files. Errors contain paths, but nothing of a key.
func read(f Files) (*material, error) {
	chain, err := readFile(f.Cert)
	if err != nil {
		return nil, err
	}
	key, err := readFile(f.Key)
	if err != nil {
		return nil, err
	}
	m := &material{pairSum: sha256.Sum256(slices.Concat(chain, []byte{0}, key))}
	if m.pair, err = tls.X509KeyPair(chain, key); err != nil {
		return nil, fmt.Errorf("%s with %s: %w", f.Cert, f.Key, err)
	}
	if f.ClientCA == "" {
		return m, nil
	}
	bundle, err := readFile(f.ClientCA)
	if err != nil {
		return nil, err
	}
	if m.authorities, err = parseBundle(bundle); err != nil {
		return nil, fmt.Errorf("%s: %w", f.ClientCA, err)
	}
	m.poolSum, m.pool = sha256.Sum256(bundle), x509.NewCertPool()
	for _, a := range m.authorities {
		m.pool.AddCert(a)
	}
	if f.CRL != "" {
		m.revoked, err = readRevocations(f.CRL, m.authorities)
	}
	return m, err
}

func readFile(path string) ([]byte, error) {
	text, _, err := files.Regular(path, maxFileBytes)
	return text, err
}

// parseBundle parses certificates of authorities and fails if any is
// invalid. x509.CertPool would skip invalid certificates, and the clients of
// the skipped authorities would be rejected.
func parseBundle(text []byte) (all []*x509.Certificate, err error) {
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			return nil, fmt.Errorf("holds a %.64q, must hold certificates only", block.Type)
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("certificate %d: %w", len(all)+1, err)
		}
		if !c.IsCA {
			return nil, fmt.Errorf("certificate %d, %.64q, is not a certificate authority", len(all)+1, c.Subject.CommonName)
		}
		all = append(all, c)
	}
	if bytes.Contains(text, []byte("-----BEGIN")) {
		return nil, fmt.Errorf("the data after certificate %d is not PEM", len(all))
	}
	if len(all) == 0 {
		return nil, errors.New("contains no certificate")
	}
	return all, nil
}

// verifier returns an error if a chain is not trusted at a time with the given
// material.
type verifier func(m *material, chain []*x509.Certificate, now time.Time) error

// ofClients verifies clients' certificates.
func ofClients(m *material, chain []*x509.Certificate, now time.Time) error {
	return m.verify(chain, x509.ExtKeyUsageClientAuth, now)
}

// verify checks that a chain leads to one of the authorities and is valid for
// use.
func (m *material) verify(chain []*x509.Certificate, use x509.ExtKeyUsage, now time.Time) error {
	if m.pool == nil {
		return errDistrusted
	}
	o := x509.VerifyOptions{
		Roots: m.pool, Intermediates: x509.NewCertPool(), CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{use},
	}
	for _, c := range chain[1:] {
		o.Intermediates.AddCert(c)
	}
	_, err := chain[0].Verify(o)
	return err
}

// authorityEnd returns the earliest expiry of the authorities.
func (m *material) authorityEnd() time.Time {
	end := m.authorities[0].NotAfter
	for _, a := range m.authorities {
		if a.NotAfter.Before(end) {
			end = a.NotAfter
		}
	}
	return end
}
