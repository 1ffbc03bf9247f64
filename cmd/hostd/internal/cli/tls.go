package cli

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// TLSFiles are the files that a client uses to verify nodes and to authenticate
// itself. Keys are only in files, because other users can read a command line.
type TLSFiles struct {
	CACert, Cert, Key string
}

// AddFlags adds the flags --cacert, --cert and --key to a command.
func (f *TLSFiles) AddFlags(c *cobra.Command) {
	c.Flags().StringVar(&f.CACert, "cacert", os.Getenv("HOSTD_CACERT"), "`file` with the certificate authorities of the nodes, in PEM; defaults to those of the system; env HOSTD_CACERT")
	c.Flags().StringVar(&f.Cert, "cert", os.Getenv("HOSTD_CERT"), "`file` with the client certificate, in PEM; env HOSTD_CERT")
	c.Flags().StringVar(&f.Key, "key", os.Getenv("HOSTD_KEY"), "`file` with the private key of the client certificate, in PEM; env HOSTD_KEY")
}

// maxPEMBytes limits each of the files.
const maxPEMBytes = 1 << 20

// Config reads the files; nil if none is set. They may be pipes: Config waits
// for them until ctx ends, and they can be read only once.
func (f *TLSFiles) Config(ctx context.Context) (*tls.Config, error) {
	if *f == (TLSFiles{}) {
		return nil, nil
	}
	if (f.Cert == "") != (f.Key == "") {
		return nil, errors.New("--cert and --key must be set together")
	}
	config := &tls.Config{MinVersion: tls.VersionTLS13}
	if f.CACert != "" {
		bundle, err := ReadFile(ctx, f.CACert, maxPEMBytes)
		if err != nil {
			return nil, fmt.Errorf("--cacert: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(bundle) {
			return nil, fmt.Errorf("--cacert: %s contains no certificate", f.CACert)
		}
	}
	if f.Cert != "" {
		chain, err := ReadFile(ctx, f.Cert, maxPEMBytes)
		if err != nil {
			return nil, fmt.Errorf("--cert: %w", err)
		}
		key, err := ReadFile(ctx, f.Key, maxPEMBytes)
		if err != nil {
			return nil, fmt.Errorf("--key: %w", err)
		}
		pair, err := tls.X509KeyPair(chain, key)
		if err != nil {
			return nil, fmt.Errorf("--cert and --key: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

// HTTPClient returns an HTTP client with a TLS configuration, which may be nil.
// The caller closes its idle connections.
func HTTPClient(config *tls.Config) *http.Client {
	if config != nil {
		config = config.Clone() // the transport modifies it
	}
	return &http.Client{Transport: &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true, IdleConnTimeout: 10 * time.Second}}
}

// hintTLS suggests what to do about a failed handshake; "" if there was none.
func hintTLS(err error) string {
	var untrusted *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	switch {
	case errors.As(err, &untrusted):
		return "Set the authority that issued the node's certificate with --cacert or HOSTD_CACERT, and use a host name of the certificate in the node's address."
	case errors.As(err, &record), strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"):
		return "The node does not use TLS: use http:// in its address, or set its tls-mode."
	case strings.Contains(err.Error(), "remote error: tls: "):
		return "The node does not accept this client's certificate: set one from an authority in its tls-client-ca-file with --cert and --key."
	}
	return ""
}
