package devcluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"

	"github.com/hostd/hostd/cmd/hostd/internal/cli"
	"github.com/hostd/hostd/host/certs"
	"github.com/hostd/hostd/host/config"
)

// certificateDir is the directory of the development certificates, below the
// data directory.
const certificateDir = "tls"

// devClient is the name in the client certificate of commands.
const devClient = "dev"

// certify issues certificates for the nodes and a client each time that the
// cluster starts, because the addresses of the nodes may have changed. The
// authority is kept.
func (c *Cluster) certify(ctx context.Context, data string, addrs []string) (err error) {
	dir, err := filepath.Abs(filepath.Join(data, certificateDir))
	if err != nil {
		return err
	}
	authority, err := certs.OpenAuthority(dir)
	if errors.Is(err, os.ErrNotExist) {
		authority, err = certs.CreateAuthority(dir, config.Default().ClusterName)
	}
	if err != nil {
		return err
	}
	for i, addr := range addrs {
		id := fmt.Sprintf("n%d", i+1)
		hosts := []string{"localhost", "127.0.0.1", "::1"}
		if host, _, err := net.SplitHostPort(addr); err == nil && host != "" && !slices.Contains(hosts, host) {
			hosts = append(hosts, host)
		}
		cert, key := certs.NodeFiles(dir, id)
		if err := issueAnew(authority, cert, key, certs.Request{Name: id, Cluster: config.Default().ClusterName, Hosts: hosts}); err != nil {
			return err
		}
	}
	cert, key := certs.ClientFiles(dir, devClient)
	if err := issueAnew(authority, cert, key, certs.Request{Name: devClient}); err != nil {
		return err
	}
	ca, _ := certs.AuthorityFiles(dir)
	c.Files = cli.TLSFiles{CACert: ca, Cert: cert, Key: key}
	c.tls, err = c.Files.Config(ctx)
	return err
}

// issueAnew replaces a certificate.
func issueAnew(a *certs.Authority, cert, key string, q certs.Request) error {
	for _, file := range []string{cert, key} {
		if err := os.Remove(file); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return a.Issue(cert, key, q)
}

// tlsFlags returns the flags for a node's certificates; none without TLS.
func (c *Cluster) tlsFlags(id string) []string {
	if c.tls == nil {
		return nil
	}
	cert, key := certs.NodeFiles(filepath.Dir(c.Files.CACert), id)
	return []string{"--tls-mode", string(config.TLSRequire), "--tls-cert-file", cert, "--tls-key-file", key, "--tls-client-ca-file", c.Files.CACert}
}

// TLS returns the files that clients need; nil without TLS.
func (c *Cluster) TLS() *TLSInfo {
	if c.tls == nil {
		return nil
	}
	return &TLSInfo{CACert: c.Files.CACert, Cert: c.Files.Cert, Key: c.Files.Key}
}

// HTTPClient returns an HTTP client that trusts the nodes' certificates.
func (c *Cluster) HTTPClient() *http.Client { return cli.HTTPClient(c.tls) }
