package certs

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Validity of issued certificates.
const (
	AuthorityLife = 10 * 365 * 24 * time.Hour
	LeafLife      = 365 * 24 * time.Hour
)

// backdate is a tolerance for clocks that are behind the clock of the issuer.
const backdate = 5 * time.Minute

// maxHosts bounds the number of host names of a node.
const maxHosts = 64

// Names of an authority's files in its directory.
const (
	AuthorityCert = "ca.crt"
	AuthorityKey  = "ca.key"
)

// Authority issues certificates for the nodes and clients of a cluster.
type Authority struct {
	Cert *x509.Certificate
	key  crypto.Signer
}

// Request describes a certificate to issue.
type Request struct {
	// Name becomes the subject: a node's id or a client's name, in [a-z0-9._-].
	Name string
	// Cluster is the name of the node's cluster. If it is set, the certificate
	// contains the URI spiffe://CLUSTER/hostd/node/NAME. If it is empty, the
	// certificate is for a client.
	Cluster string
	// Hosts are the DNS names and IP addresses of a node.
	Hosts []string
	// From and Until bound the validity. The zero values mean five minutes ago,
	// and LeafLife from now.
	From, Until time.Time
}

// CreateAuthority creates an authority with its two files in dir, which it
// creates if needed. If a file exists, it returns an error that wraps
// os.ErrExist.
func CreateAuthority(dir, cluster string) (*Authority, error) {
	if err := checkCluster(cluster); err != nil {
		return nil, fmt.Errorf("cluster name %.64q: %w", cluster, err)
	}
	now := time.Now()
	template := &x509.Certificate{
		Subject:   pkix.Name{CommonName: "hostd authority of " + cluster},
		NotBefore: now.Add(-backdate), NotAfter: now.Add(AuthorityLife),
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		IsCA:     true, BasicConstraintsValid: true, MaxPathLenZero: true,
	}
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	der, err := sign(template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	certFile, keyFile := AuthorityFiles(dir)
	if err := write(certFile, der, keyFile, key); err != nil {
		return nil, err
	}
	return OpenAuthority(dir)
}

// OpenAuthority loads an authority from its two files.
func OpenAuthority(dir string) (*Authority, error) {
	pair, err := tls.LoadX509KeyPair(AuthorityFiles(dir))
	if err != nil {
		return nil, fmt.Errorf("open the authority: %w", err)
	}
	key, ok := pair.PrivateKey.(crypto.Signer)
	if !ok || !pair.Leaf.IsCA {
		return nil, fmt.Errorf("open the authority: %s is not the certificate of an authority", filepath.Join(dir, AuthorityCert))
	}
	return &Authority{pair.Leaf, key}, nil
}

// AuthorityFiles returns the paths of the authority's files in a directory.
func AuthorityFiles(dir string) (cert, key string) {
	return filepath.Join(dir, AuthorityCert), filepath.Join(dir, AuthorityKey)
}

// NodeFiles returns the paths of a node's certificate and key.
func NodeFiles(dir, name string) (cert, key string) {
	return filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key")
}

// ClientFiles returns the paths of a client's certificate and key.
func ClientFiles(dir, name string) (cert, key string) { return NodeFiles(dir, "client."+name) }

// ReadCertificate reads the first certificate in a file.
func ReadCertificate(path string) (*x509.Certificate, error) {
	text, err := readFile(path)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(text)
	if block == nil || block.Type != "CERTIFICATE" {
		return nil, fmt.Errorf("%s: contains no certificate in PEM", path)
	}
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}

// Issue writes a certificate and its key; only the owner may read the key. If a
// file exists, it returns an error that wraps os.ErrExist.
func (a *Authority) Issue(cert, key string, q Request) error {
	if err := q.check(); err != nil {
		return err
	}
	now := time.Now()
	template := &x509.Certificate{
		Subject:   pkix.Name{CommonName: q.Name},
		NotBefore: now.Add(-backdate), NotAfter: now.Add(LeafLife),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		BasicConstraintsValid: true,
	}
	if !q.From.IsZero() {
		template.NotBefore = q.From
	}
	if !q.Until.IsZero() {
		template.NotAfter = q.Until
	}
	if template.NotAfter.After(a.Cert.NotAfter) {
		template.NotAfter = a.Cert.NotAfter
	}
	if q.Cluster != "" {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
		template.URIs = []*url.URL{nodeURI(q.Cluster, q.Name)}
		for _, h := range q.Hosts {
			if ip := net.ParseIP(h); ip != nil {
				template.IPAddresses = append(template.IPAddresses, ip)
			} else {
				template.DNSNames = append(template.DNSNames, h)
			}
		}
	}
	own, err := newKey()
	if err != nil {
		return err
	}
	der, err := sign(template, a.Cert, own.Public(), a.key)
	if err != nil {
		return err
	}
	return write(cert, der, key, own)
}

// Parts of the URI that names a node.
const (
	nodeScheme = "spiffe"
	nodePath   = "/hostd/node/"
)

// nodeURI returns the URI that names a node in its certificate.
func nodeURI(cluster, node string) *url.URL {
	return &url.URL{Scheme: nodeScheme, Host: cluster, Path: nodePath + node}
}

// OfNode reports whether a certificate names a node: of any cluster by a URI, or
// of the given cluster by a DNS name, as nodes accept it from each other. DNS
// names of other clusters do not count, because other systems use the same form.
func OfNode(c *x509.Certificate, cluster string) bool {
	if slices.ContainsFunc(c.URIs, func(u *url.URL) bool { return u.Scheme == nodeScheme && strings.HasPrefix(u.Path, nodePath) }) {
		return true
	}
	strange := false
	return cluster != "" && len(nodesNamed(c, cluster, &strange)) > 0
}

func (q Request) check() error {
	if err := checkName(q.Name); err != nil {
		return fmt.Errorf("name %.64q: %w", q.Name, err)
	}
	if q.Cluster == "" {
		if len(q.Hosts) > 0 {
			return errors.New("a client certificate must not have hosts")
		}
		return nil
	}
	if err := checkCluster(q.Cluster); err != nil {
		return fmt.Errorf("cluster name %.64q: %w", q.Cluster, err)
	}
	if len(q.Hosts) == 0 || len(q.Hosts) > maxHosts {
		return fmt.Errorf("a node certificate must have 1 to %d hosts, got %d", maxHosts, len(q.Hosts))
	}
	for _, h := range q.Hosts {
		if net.ParseIP(h) == nil && (h == "" || len(h) > 253 || strings.ContainsAny(h, ":/@ []")) {
			return fmt.Errorf("host %.64q is neither a DNS name nor an IP address", h)
		}
	}
	return nil
}

// checkName checks a node, client or cluster name. It must be safe as a file
// name.
func checkName(name string) error {
	if name == "" || len(name) > 64 || strings.HasPrefix(name, ".") {
		return errors.New("must have 1 to 64 bytes and must not start with '.'")
	}
	if strings.ContainsFunc(name, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '.' && c != '_' && c != '-'
	}) {
		return errors.New("has a character outside [a-z0-9._-]")
	}
	return nil
}

// checkCluster checks a cluster name. It is the host in a node's URI, and x509
// cannot parse a certificate if a label of that host is empty.
func checkCluster(name string) error {
	if strings.Contains("."+name+".", "..") {
		return errors.New("must not end with '.' or contain '..'")
	}
	return checkName(name)
}

func newKey() (*ecdsa.PrivateKey, error) { return ecdsa.GenerateKey(elliptic.P256(), rand.Reader) }

// sign creates a certificate. x509 chooses a random serial number.
func sign(template, parent *x509.Certificate, public crypto.PublicKey, key crypto.Signer) ([]byte, error) {
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, key)
	if err != nil {
		return nil, fmt.Errorf("issue a certificate: %w", err)
	}
	return der, nil
}

// write writes a key and its certificate, either both or neither.
func write(certFile string, der []byte, keyFile string, key *ecdsa.PrivateKey) error {
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	if err := writeNew(keyFile, 0o600, "PRIVATE KEY", secret); err != nil {
		return err
	}
	if err := writeNew(certFile, 0o644, "CERTIFICATE", der); err != nil {
		return errors.Join(err, os.Remove(keyFile))
	}
	return nil
}

func writeNew(path string, mode os.FileMode, kind string, der []byte) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	err = pem.Encode(f, &pem.Block{Type: kind, Bytes: der})
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return nil
}
