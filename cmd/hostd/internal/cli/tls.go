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

// TLSFiles are the files by which a client knows nodes, and is known to them.
// Keys are in files alone: a command line can be read by others.
type TLSFiles struct {
	CACert, Cert, Key string
}

// AddFlags gives a command the flags --cacert, --cert and --key.
func (f *TLSFiles) AddFlags(c *cobra.Command) {
	c.Flags().StringVar(&f.CACert, "cacert", os.Getenv("HOSTD_CACERT"), "`file` with the certificate authorities of the nodes, in PEM; defaults to those of the system; env HOSTD_CACERT")
	c.Flags().StringVar(&f.Cert, "cert", os.Getenv("HOSTD_CERT"), "`file` with the client certificate, in PEM; env HOSTD_CERT")
	c.Flags().StringVar(&f.Key, "key", os.Getenv("HOSTD_KEY"), "`file` with the private key of the client certificate, in PEM; env HOSTD_KEY")
}

// maxPEMBytes bounds each of the files.
const maxPEMBytes = 1 << 20

// Config reads the files; nil where there are none. They may be pipes, which
// are waited for as long as ctx and are empty the second time.
func (f *TLSFiles) Config(ctx context.Context) (*tls.Config, error) {
	if *f == (TLSFiles{}) {
		return nil, nil
	}
	if (f.Cert == "") != (f.Key == "") {
		return nil, errors.New("--cert and --key belong together: one of them is missing")
	}
	config := &tls.Config{MinVersion: tls.VersionTLS13}
	if f.CACert != "" {
		bundle, err := ReadFile(ctx, f.CACert, maxPEMBytes)
		if err != nil {
			return nil, fmt.Errorf("--cacert: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(bundle) {
			return nil, fmt.Errorf("--cacert: %s holds no certificate", f.CACert)
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

// HTTPClient is a client of HTTP that goes by a configuration, which may be
// nil. The caller closes its idle connections.
func HTTPClient(config *tls.Config) *http.Client {
	if config != nil {
		config = config.Clone() // the transport changes it
	}
	return &http.Client{Transport: &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true, IdleConnTimeout: 10 * time.Second}}
}

// hintTLS says what may be done about a handshake that failed; "" where none
// did.
func hintTLS(err error) string {
	var untrusted *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	switch {
	case errors.As(err, &untrusted):
		return "Name the authority that issued the node's certificate with --cacert or HOSTD_CACERT, and the node by a host that its certificate has."
	case errors.As(err, &record), strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"):
		return "The node does not speak TLS: give its address as http://, or set its tls-mode."
	case strings.Contains(err.Error(), "remote error: tls: "):
		return "The node does not take this client's certificate: show one of its tls-client-ca-file with --cert and --key."
	}
	return ""
}
