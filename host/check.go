package host

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"github.com/hostd/hostd/host/authn"
	"github.com/hostd/hostd/host/certs"
	"github.com/hostd/hostd/host/config"
	"github.com/hostd/hostd/host/datadir"
	"github.com/hostd/hostd/host/network"
	"github.com/hostd/hostd/journal/disk"
)

// Finding is the result of one of the tests that Check makes.
type Finding struct {
	Subject string // the configuration key that was checked
	Err     error  // nil if the check passed
}

// Check tests whether a node could start with cfg. It looks at the data
// directory and its disk, the ports, and the files that the configuration
// names. It starts no node and leaves nothing behind. It fails while a node
// uses the same data directory or ports.
func Check(cfg config.Config) []Finding {
	out := []Finding{
		{"data-dir", checkDirectory(cfg.DataDir)},
		{"disk-read-only-bytes", checkSpace(cfg.DataDir, uint64(cfg.DiskReadOnlyBytes))},
		{"listen", checkPorts(cfg)},
	}
	add := func(subject string, err error) { out = append(out, Finding{subject, err}) }
	if cfg.TLS() != config.TLSOff {
		clients := certs.Options{Files: certs.Files{Cert: cfg.TLSCertFile, Key: cfg.TLSKeyFile, ClientCA: cfg.TLSClientCAFile}}
		if cfg.ClientAuth() == config.ClientAuthRequire {
			clients.ClientAuth = tls.RequireAndVerifyClientCert
		}
		_, err := certs.Open(clients)
		add("tls-cert-file", err)
	}
	if cfg.PeerTLS() != config.TLSOff {
		_, err := certs.OpenPeers(certs.PeerOptions{
			Options: certs.Options{Files: certs.Files{Cert: cfg.PeerCertFile, Key: cfg.PeerKeyFile, ClientCA: cfg.PeerCAFile, CRL: cfg.PeerCRLFile}},
			Cluster: cfg.ClusterName, Node: string(cfg.NodeID), Allow: cfg.PeerTLS() == config.TLSAllow, Network: network.TCP{},
		})
		add("peer-cert-file", err)
	}
	if cfg.GossipKeyFile != "" {
		_, err := cfg.GossipKey()
		add("gossip-key-file", err)
	}
	if cfg.AuthBootstrapFile != "" {
		_, err := authn.ReadFirstAdmin(cfg.AuthBootstrapFile)
		add("auth-bootstrap-file", err)
	}
	for _, file := range []struct{ subject, path string }{
		{"token-file", cfg.TokenFile},
		{"jwt-keys-file", cfg.JWTKeysFile},
		{"module-trust-file", cfg.ModuleTrustFile},
		{"otlp-headers-file", cfg.OTLPHeadersFile},
	} {
		if file.path != "" {
			add(file.subject, checkReadable(file.path))
		}
	}
	return out
}

func checkReadable(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return f.Close()
}

// checkDirectory returns an error if a node could not use or create the
// directory, or if another process holds its lock.
func checkDirectory(dir string) error {
	at, err := existing(dir)
	if err != nil {
		return err
	}
	probe, err := os.CreateTemp(at, ".hostd-check-*")
	if err != nil {
		return err
	}
	if err := errors.Join(probe.Close(), os.Remove(probe.Name())); err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(dir, datadir.LockFile)); err != nil {
		return nil // no node has used the directory yet
	}
	lock, err := datadir.Lock(dir)
	if err != nil {
		return err
	}
	return lock.Close()
}

// existing returns the absolute path of dir, or of its nearest parent that
// exists.
func existing(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	for err == nil {
		info, missing := os.Stat(dir)
		if missing == nil && !info.IsDir() {
			return "", fmt.Errorf("%s is not a directory", dir)
		}
		if !errors.Is(missing, os.ErrNotExist) || dir == filepath.Dir(dir) {
			return dir, missing
		}
		dir = filepath.Dir(dir)
	}
	return "", err
}

func checkSpace(dir string, least uint64) error {
	at, err := existing(dir)
	if err != nil {
		return err
	}
	free, _, err := disk.Space(at)
	if err != nil {
		return err
	}
	if free < least {
		return fmt.Errorf("%s has %d bytes free, and the node rejects writes below %d", at, free, least)
	}
	return nil
}

// checkPorts listens on all configured addresses for a moment.
func checkPorts(cfg config.Config) error {
	var p ports
	peers := func(clients net.Addr) []string { return cfg.PeerListens(clients) }
	if err := p.listen(network.TCP{}, cfg.Listen, cfg.HealthListen, peers, nil); err != nil {
		return err
	}
	var errs []error
	for _, l := range []listener{p.clients, p.peers} {
		errs = append(errs, l.close())
	}
	if p.health != nil {
		errs = append(errs, p.health.Close())
	}
	return errors.Join(errs...)
}
