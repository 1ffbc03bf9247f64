package certs

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"time"
)

const pemRevocations = "X509 CRL"

// errRevoked ends a handshake with a revoked certificate.
var errRevoked = errors.New("the certificate is revoked, see peer-crl-file")

// revocations holds revoked certificates. The zero value is empty. It is
// immutable.
type revocations struct {
	sum sha256Sum
	// by maps a serial number to the authorities that have revoked it.
	by    map[string][]*x509.Certificate
	lists []*x509.RevocationList
}

type sha256Sum = [sha256.Size]byte

// readRevocations reads one list in DER or several in PEM. Each must be signed
// by one of the authorities. It doesn't check the validity period, see check.
func readRevocations(path string, authorities []*x509.Certificate) (r revocations, err error) {
	text, err := readFile(path)
	if err != nil {
		return r, err
	}
	if r.lists, err = parseRevocations(text); err != nil {
		return r, fmt.Errorf("%s: %w", path, err)
	}
	r.sum, r.by = sha256.Sum256(text), map[string][]*x509.Certificate{}
	for i, l := range r.lists {
		signer := signerOf(l, authorities)
		if signer == nil {
			return r, fmt.Errorf("%s: list %d, of %.64q, is not signed by an authority of peer-ca-file", path, i+1, l.Issuer.CommonName)
		}
		for _, e := range l.Extensions {
			// A critical extension could limit the scope of the list.
			if e.Critical {
				return r, fmt.Errorf("%s: list %d has the unknown critical extension %v", path, i+1, e.Id)
			}
		}
		for _, e := range l.RevokedCertificateEntries {
			serial := string(e.SerialNumber.Bytes())
			r.by[serial] = append(r.by[serial], signer)
		}
	}
	return r, nil
}

func parseRevocations(text []byte) (lists []*x509.RevocationList, err error) {
	if !bytes.Contains(text, []byte("-----BEGIN")) {
		l, err := x509.ParseRevocationList(text)
		if err != nil {
			return nil, fmt.Errorf("is not a revocation list in PEM or DER: %w", err)
		}
		return []*x509.RevocationList{l}, nil
	}
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			break
		}
		if block.Type != pemRevocations {
			return nil, fmt.Errorf("holds a %.64q, must hold revocation lists only", block.Type)
		}
		l, err := x509.ParseRevocationList(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("list %d: %w", len(lists)+1, err)
		}
		lists = append(lists, l)
	}
	if len(lists) == 0 || bytes.Contains(text, []byte("-----BEGIN")) {
		return nil, fmt.Errorf("the data after list %d is not PEM", len(lists))
	}
	return lists, nil
}

// signerOf returns the authority that has signed a list, or nil.
func signerOf(l *x509.RevocationList, authorities []*x509.Certificate) *x509.Certificate {
	for _, a := range authorities {
		if bytes.Equal(a.RawSubject, l.RawIssuer) && a.CheckSignature(l.SignatureAlgorithm, l.RawTBSRevocationList, l.Signature) == nil {
			return a
		}
	}
	return nil
}

// check returns an error if a list has ended or is not valid yet.
func (r *revocations) check(path string, now time.Time) error {
	for i, l := range r.lists {
		if end := l.NextUpdate; !end.IsZero() && end.Before(now) {
			return fmt.Errorf("%s: list %d expired at %s: replace it with a newer one", path, i+1, end.UTC().Format(time.RFC3339))
		}
		if l.ThisUpdate.After(now) {
			return fmt.Errorf("%s: list %d is valid only from %s: check the clock of this machine", path, i+1, l.ThisUpdate.UTC().Format(time.RFC3339))
		}
	}
	return nil
}

// has reports whether any certificate of a chain is revoked.
func (r *revocations) has(chain []*x509.Certificate) bool {
	for _, c := range chain {
		for _, authority := range r.by[string(c.SerialNumber.Bytes())] {
			if c.CheckSignatureFrom(authority) == nil {
				return true
			}
		}
	}
	return false
}

// end returns the earliest end of the lists, and false if none has an end.
func (r *revocations) end() (end time.Time, ends bool) {
	for _, l := range r.lists {
		if !l.NextUpdate.IsZero() && (!ends || l.NextUpdate.Before(end)) {
			end, ends = l.NextUpdate, true
		}
	}
	return end, ends
}

// Limits of the lists that an authority writes.
const (
	// RevocationLife is the default validity of a list. It is long, because a
	// node does not start with a list that has ended.
	RevocationLife = LeafLife
	maxRevoked     = 10_000
)

// Revocation describes a list that was written.
type Revocation struct {
	Number  int64 // increases from list to list
	Revoked int   // number of revoked certificates
	Until   time.Time
}

// Revoke atomically replaces the list of revoked node certificates in a file.
// The new list has the entries of the existing one, plus the given
// certificates, which the authority must have issued. Without others, it only
// extends the validity of the list.
func (a *Authority) Revoke(path string, until time.Time, others ...*x509.Certificate) (Revocation, error) {
	now := time.Now()
	out := Revocation{Number: 1, Until: until}
	l := &x509.RevocationList{ThisUpdate: now.Add(-backdate), NextUpdate: until}
	if !until.After(now) {
		return out, fmt.Errorf("the list would expire at %s, which is in the past", until.UTC().Format(time.RFC3339))
	}
	before, err := readRevocations(path, []*x509.Certificate{a.Cert})
	switch {
	case errors.Is(err, os.ErrNotExist):
	case err != nil:
		return out, err
	case len(before.lists) != 1:
		return out, fmt.Errorf("%s: must contain one list of this authority, got %d", path, len(before.lists))
	default:
		l.RevokedCertificateEntries = before.lists[0].RevokedCertificateEntries
		if n := before.lists[0].Number; n != nil && n.IsInt64() {
			out.Number = n.Int64() + 1
		}
	}
	for _, c := range others {
		switch {
		case c.CheckSignatureFrom(a.Cert) != nil:
			return out, fmt.Errorf("this authority did not issue the certificate of %.64q", c.Subject.CommonName)
		case !OfNode(c, ""):
			return out, fmt.Errorf("%.64q is a client certificate: nodes check the list only for other nodes, so remove the roles of its subject instead", c.Subject.CommonName)
		}
		known := slices.ContainsFunc(l.RevokedCertificateEntries, func(e x509.RevocationListEntry) bool { return e.SerialNumber.Cmp(c.SerialNumber) == 0 })
		if !known {
			l.RevokedCertificateEntries = append(l.RevokedCertificateEntries, x509.RevocationListEntry{SerialNumber: c.SerialNumber, RevocationTime: now})
		}
	}
	if out.Revoked = len(l.RevokedCertificateEntries); out.Revoked > maxRevoked {
		return out, fmt.Errorf("the list would have %d certificates, at most %d are allowed: create a new authority", out.Revoked, maxRevoked)
	}
	l.Number = big.NewInt(out.Number)
	text, err := a.list(l)
	if err != nil {
		return out, err
	}
	return out, replace(path, text)
}

// replace atomically replaces a file by a rename.
func replace(path string, text []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".crl-*")
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	err = errors.Join(err, f.Chmod(0o644), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// RevocationList returns a list of revoked serial numbers of the authority in
// PEM. number must increase from list to list.
func (a *Authority) RevocationList(number int64, from, until time.Time, serials ...*big.Int) ([]byte, error) {
	l := &x509.RevocationList{Number: big.NewInt(number), ThisUpdate: from, NextUpdate: until}
	for _, s := range serials {
		l.RevokedCertificateEntries = append(l.RevokedCertificateEntries, x509.RevocationListEntry{SerialNumber: s, RevocationTime: from})
	}
	return a.list(l)
}

func (a *Authority) list(l *x509.RevocationList) ([]byte, error) {
	der, err := x509.CreateRevocationList(rand.Reader, l, a.Cert, a.key)
	if err != nil {
		return nil, fmt.Errorf("create a revocation list: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: pemRevocations, Bytes: der}), nil
}
