package host

import (
	"crypto/tls"

	"github.com/hostd/hostd/host/certs"
	"github.com/hostd/hostd/host/config"
)

// openCertificates reads the certificates of the port, and follows their files.
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

// Reload reads the files anew that a node follows while it runs. What cannot be
// used is logged, and what was there before stays.
func (n *Node) Reload() {
	if n.certs != nil {
		_ = n.certs.Reload() // it has logged why not
	}
	if auth := n.auth.Load(); auth != nil {
		auth.Reload()
	}
}

// URL is the address of the node for clients, without a slash at its end.
func (n *Node) URL() string {
	if n.cfg.TLS() == config.TLSRequire {
		return "https://" + n.Addr()
	}
	return "http://" + n.Addr()
}
