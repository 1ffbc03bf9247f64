package config

import (
	"cmp"
	"net"
)

// What may reach a listener, and what guards it, are looked at for clients and
// for other nodes apart: each needs a guard, or a flag that says that something
// else is one.

// guardsClients reports whether a client reaches nothing that proves not who it
// is, and nobody on the way reads what it says. auth: allow lets anybody in.
func (c *Config) guardsClients() bool { return c.TLS() == TLSRequire && c.asksClients() }

// asksClients reports whether every client proves who it is.
func (c *Config) asksClients() bool {
	return c.Auth == AuthRequired || c.ClientAuth() == ClientAuthRequire
}

// guardsPeers is guardsClients for other nodes, which show certificates then.
func (c *Config) guardsPeers() bool { return c.PeerTLS() == TLSRequire }

// given is an address of the configuration, by its own key or by that of
// another one whose host it has.
type given struct{ key, address, from string }

// open reports whether others than this machine reach it.
func (a given) open() bool {
	_, _, err := net.SplitHostPort(a.address)
	return err == nil && !loopback(a.address)
}

// String names the host.
func (a given) String() string {
	host, _, _ := net.SplitHostPort(a.address)
	host = cmp.Or(host, "every interface")
	if a.from != "" {
		return host + ", as " + a.from + " is"
	}
	return host
}

func (c *Config) clientAddresses() []given {
	return []given{{key: "listen", address: c.Listen}, {key: "advertise", address: c.Advertise}}
}

func (c *Config) peerAddresses() []given {
	return []given{{key: "peer-listen", address: c.PeerListen}, {key: "peer-advertise", address: c.PeerAdvertise}}
}

// impliedPeers is what the addresses for clients make of those for other nodes
// that are not given: the host is theirs.
func (c *Config) impliedPeers() []given {
	var out []given
	if c.PeerListen == "" {
		out = append(out, given{"peer-listen", c.Listen, "listen"})
	}
	if c.PeerAdvertise == "" {
		out = append(out, given{"peer-advertise", c.Advertise, "advertise"})
	}
	return out
}

func open(addresses []given) (out []given) {
	for _, a := range addresses {
		if a.open() {
			out = append(out, a)
		}
	}
	return out
}

// checkGuards refuses addresses that others can reach where nothing guards what
// is served there, unless that was asked for by name. In the release before
// insecure-listen stood for other nodes too: where their addresses follow from
// those for clients it still does, and PeersUnguarded says so.
func (c *Config) checkGuards(fault func(key, format string, args ...any)) {
	if !c.InsecureListen && !c.guardsClients() {
		for _, a := range open(c.clientAddresses()) {
			fault(a.key, "is %s, which is not a loopback address, and not every client has to speak TLS and to prove who it is, so anybody who reaches the port owns the node; "+
				"use 127.0.0.1, set tls-mode to require and auth to required, or pass --insecure-listen when something else guards the port", a)
		}
	}
	if c.InsecurePeers || c.guardsPeers() {
		return
	}
	peers := c.peerAddresses()
	if !c.InsecureListen {
		peers = append(peers, c.impliedPeers()...)
	}
	for _, a := range open(peers) {
		fault(a.key, "is %s, which is not a loopback address, and nodes do not have to authenticate each other, so anybody who reaches the port owns the node; "+
			"use 127.0.0.1, set peer-tls-mode to require, or pass --insecure-peers when something else guards the port", a)
	}
}

// ClientsUnguarded says what does not guard the clients' listener although
// others than this machine reach it; nothing where all is guarded.
func (c *Config) ClientsUnguarded() (out []string) {
	if len(open(c.clientAddresses())) == 0 {
		return nil
	}
	if c.TLS() != TLSRequire {
		out = append(out, "clients may speak without TLS: anyone on the way to this address can read and change what they say, credentials too")
	}
	if !c.asksClients() {
		out = append(out, "clients need not say who they are: anyone who reaches this address controls the node")
	}
	return out
}

// PeersUnguarded is ClientsUnguarded for the peers' listener.
func (c *Config) PeersUnguarded() (out []string) {
	implied := open(c.impliedPeers())
	if c.guardsPeers() || len(implied)+len(open(c.peerAddresses())) == 0 {
		return nil
	}
	out = append(out, "nodes speak to each other without TLS, or may, and need not authenticate each other: anyone who reaches this address can pretend to be one")
	if !c.InsecurePeers && len(implied) > 0 {
		out = append(out, "other nodes are served on an address that is not loopback by the word of insecure-listen, as in the release before: set insecure-peers, and insecure-listen for clients alone")
	}
	return out
}
