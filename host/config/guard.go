package config

import (
	"cmp"
	"net"
)

// The exposure of the two listeners, for clients and for other nodes, is checked
// separately: an address that other machines can reach needs TLS and
// authentication, or a flag that says that something else protects the port.

// clientsGuarded reports whether every client must use TLS and authenticate. Note
// that auth: allow admits anonymous clients.
func (c *Config) clientsGuarded() bool { return c.TLS() == TLSRequire && c.authenticatesClients() }

// authenticatesClients reports whether every client has to authenticate.
func (c *Config) authenticatesClients() bool {
	return c.Auth == AuthRequired || c.ClientAuth() == ClientAuthRequire
}

// peersGuarded reports whether nodes must use TLS, and so certificates, with each other.
func (c *Config) peersGuarded() bool { return c.PeerTLS() == TLSRequire }

// configuredAddress is an address with the key that sets it. If that key is
// unset, the address uses the host of the address in the key from.
type configuredAddress struct{ key, address, from string }

// isExposed reports whether other machines can reach the address.
func (a configuredAddress) isExposed() bool {
	_, _, err := net.SplitHostPort(a.address)
	return err == nil && !loopback(a.address)
}

// String returns the host, and the key that it comes from.
func (a configuredAddress) String() string {
	host, _, _ := net.SplitHostPort(a.address)
	host = cmp.Or(host, "every interface")
	if a.from != "" {
		return host + ", from " + a.from
	}
	return host
}

func (c *Config) clientAddresses() []configuredAddress {
	return []configuredAddress{{key: "listen", address: c.Listen}, {key: "advertise", address: c.Advertise}}
}

func (c *Config) peerAddresses() []configuredAddress {
	return []configuredAddress{{key: "peer-listen", address: c.PeerListen}, {key: "peer-advertise", address: c.PeerAdvertise}}
}

// impliedPeers returns the peer addresses that are unset and so use the host of
// the client addresses.
func (c *Config) impliedPeers() []configuredAddress {
	var out []configuredAddress
	if c.PeerListen == "" {
		out = append(out, configuredAddress{"peer-listen", c.Listen, "listen"})
	}
	if c.PeerAdvertise == "" {
		out = append(out, configuredAddress{"peer-advertise", c.Advertise, "advertise"})
	}
	return out
}

func exposedAddresses(addresses []configuredAddress) (out []configuredAddress) {
	for _, a := range addresses {
		if a.isExposed() {
			out = append(out, a)
		}
	}
	return out
}

// checkExposure rejects addresses that other machines can reach without TLS and
// authentication, unless insecure-listen or insecure-peers allows it. In the
// previous release, insecure-listen also covered the peer listener. It still
// covers the peer listener if peer addresses are derived from client
// addresses, and PeersUnguarded then returns a warning.
func (c *Config) checkExposure(fault func(key, format string, args ...any)) {
	if !c.InsecureListen && !c.clientsGuarded() {
		for _, a := range exposedAddresses(c.clientAddresses()) {
			fault(a.key, "%s is not a loopback address, and clients do not have to use TLS and to authenticate, so anybody who can reach the port controls the node; "+
				"use 127.0.0.1, set tls-mode to require and auth to required, or set --insecure-listen if something else protects the port", a)
		}
	}
	if c.InsecurePeers || c.peersGuarded() {
		return
	}
	peers := c.peerAddresses()
	if !c.InsecureListen {
		peers = append(peers, c.impliedPeers()...)
	}
	for _, a := range exposedAddresses(peers) {
		fault(a.key, "%s is not a loopback address, and nodes do not have to authenticate each other, so anybody who can reach the port controls the node; "+
			"use 127.0.0.1, set peer-tls-mode to require, or set --insecure-peers if something else protects the port", a)
	}
}

// ClientsUnguarded returns what is missing to protect the client listener if other
// machines can reach it, and nil if nothing is missing.
func (c *Config) ClientsUnguarded() (out []string) {
	if len(exposedAddresses(c.clientAddresses())) == 0 {
		return nil
	}
	if c.TLS() != TLSRequire {
		out = append(out, "clients may connect without TLS: anybody on the network path can read and change their calls, including credentials")
	}
	if !c.authenticatesClients() {
		out = append(out, "clients do not have to authenticate: anybody who can reach this address controls the node")
	}
	return out
}

// PeersUnguarded is like ClientsUnguarded, but for the peer listener.
func (c *Config) PeersUnguarded() (out []string) {
	implied := exposedAddresses(c.impliedPeers())
	if c.peersGuarded() || len(implied)+len(exposedAddresses(c.peerAddresses())) == 0 {
		return nil
	}
	out = append(out, "nodes may connect to each other without TLS and authentication: anybody who can reach this address can impersonate a node")
	if !c.InsecurePeers && len(implied) > 0 {
		out = append(out, "insecure-listen exposes the peer listener too, as in the previous release: set insecure-peers for it, and insecure-listen only for clients")
	}
	return out
}
