package host

import (
	"context"
	"crypto/tls"
	"net"

	"github.com/hostd/hostd/host/certs"
	"github.com/hostd/hostd/host/config"
	"github.com/hostd/hostd/host/network"
)

// openPeerCertificates loads the certificates for connections between nodes and
// starts to watch their files.
func (n *Node) openPeerCertificates() (err error) {
	if n.cfg.PeerTLS() == config.TLSOff {
		return nil
	}
	n.peerCerts, err = certs.OpenPeers(certs.PeerOptions{
		Options: certs.Options{
			Files:  certs.Files{Cert: n.cfg.PeerCertFile, Key: n.cfg.PeerKeyFile, ClientCA: n.cfg.PeerCAFile, CRL: n.cfg.PeerCRLFile},
			Logger: n.logger, Registerer: n.metrics.registry,
		},
		Cluster: n.cfg.ClusterName, Node: string(n.id.Node), Allow: n.cfg.PeerTLS() == config.TLSAllow, Network: n.around.Network,
	})
	if err == nil {
		n.lifecycle.watch("certificates for nodes", n.peerCerts.Run)
	}
	return err
}

// overTLS is a network that dials other nodes over TLS.
type overTLS struct {
	network.Network
	peers *certs.Peers
}

// Dial implements network.Network.
func (o overTLS) Dial(ctx context.Context, address string) (net.Conn, error) {
	return o.peers.Dial(ctx, address)
}

// peerNetwork returns the network that other nodes are dialed on.
func (n *Node) peerNetwork() network.Network {
	if n.peerCerts == nil {
		return n.around.Network
	}
	return overTLS{n.around.Network, n.peerCerts}
}

// openCertificates loads the certificates of the clients' listener and starts
// to watch their files.
func (n *Node) openCertificates() (err error) {
	if n.cfg.TLS() == config.TLSOff {
		return nil
	}
	ask := map[config.TLSClientAuth]tls.ClientAuthType{
		config.ClientAuthNone: tls.NoClientCert, config.ClientAuthOptional: tls.VerifyClientCertIfGiven, config.ClientAuthRequire: tls.RequireAndVerifyClientCert,
	}
	n.certs, err = certs.Open(certs.Options{
		Files:      certs.Files{Cert: n.cfg.TLSCertFile, Key: n.cfg.TLSKeyFile, ClientCA: n.cfg.TLSClientCAFile},
		ClientAuth: ask[n.cfg.ClientAuth()], Logger: n.logger, Registerer: n.metrics.registry,
	})
	if err == nil {
		n.lifecycle.watch("certificates", n.certs.Run)
	}
	return err
}

// Reload reads the files that the node watches again, and reports whether it
// watches any. If a file cannot be used, Reload logs the error and the previous
// contents stay in use.
func (n *Node) Reload() (any bool) {
	if n.certs != nil {
		any = true
		_ = n.certs.Reload() // Reload has logged the error
	}
	if n.peerCerts != nil {
		any = true
		_ = n.peerCerts.Reload() // Reload has logged the error
	}
	if n.joined.Load() && n.cfg.ModuleTrustFile != "" {
		any = true
		n.guests.trust.Reload()
	}
	if auth := n.auth.Load(); auth != nil {
		any = true
		auth.Reload()
	}
	return any
}

// URL returns the node's URL for clients, without a trailing slash.
func (n *Node) URL() string {
	if n.cfg.TLS() == config.TLSRequire {
		return "https://" + n.Addr()
	}
	return "http://" + n.Addr()
}
