package config

import (
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// Addr returns the address at which clients reach the node: Advertise if it is
// set, and otherwise the address in listening, on which the node listens. If
// the port of Advertise is 0, the port in listening replaces it.
func (c *Config) Addr(listening net.Addr) string {
	if c.Advertise == "" {
		return listening.String()
	}
	return ownPort(c.Advertise, listening)
}

// PeerAddr is like Addr, but for other nodes and the peer listener.
func (c *Config) PeerAddr(listening net.Addr) string {
	if c.PeerAdvertise != "" {
		return ownPort(c.PeerAdvertise, listening)
	}
	if host, _, err := net.SplitHostPort(c.Advertise); err == nil {
		return ownPort(net.JoinHostPort(host, "0"), listening)
	}
	return listening.String()
}

// ownPort replaces port 0 with the port that the node listens on.
func ownPort(advertised string, listening net.Addr) string {
	host, port, err := net.SplitHostPort(advertised)
	if _, own, err2 := net.SplitHostPort(listening.String()); err == nil && err2 == nil && port == "0" {
		return net.JoinHostPort(host, own)
	}
	return advertised
}

// maxPeerPorts bounds the ports that are tried for the peer listener.
const maxPeerPorts = 100

// PeerListens returns the addresses to try in turn for the peer listener of a node
// whose client listener is on listening: PeerListen, or the port after the client
// port. Nodes on one machine often have consecutive ports. On a loopback address it
// therefore skips ports that the seeds use and offers later ones.
func (c *Config) PeerListens(listening net.Addr) []string {
	if c.PeerListen != "" {
		return []string{c.PeerListen}
	}
	host, given, _ := net.SplitHostPort(c.Listen)
	if given == "0" {
		return []string{net.JoinHostPort(host, "0")}
	}
	_, text, _ := net.SplitHostPort(listening.String())
	first, _ := strconv.Atoi(text)
	if !loopback(c.Listen) {
		return []string{net.JoinHostPort(host, strconv.Itoa(first+1))}
	}
	var out []string
	for port := first + 1; port <= min(first+maxPeerPorts, 65535); port++ {
		if a := net.JoinHostPort(host, strconv.Itoa(port)); !c.isSeedOfOther(a) {
			out = append(out, a)
		}
	}
	return out
}

// SkippedPeerListen returns the port after the client port if PeerListens skipped it
// because it belongs to a seed, and "" otherwise.
func (c *Config) SkippedPeerListen(listening net.Addr) string {
	host, text, err := net.SplitHostPort(listening.String())
	if err != nil || c.PeerListen != "" || !loopback(c.Listen) || strings.HasSuffix(c.Listen, ":0") {
		return ""
	}
	port, err := strconv.Atoi(text)
	if a := net.JoinHostPort(host, strconv.Itoa(port+1)); err == nil && c.isSeedOfOther(a) {
		return a
	}
	return ""
}

// isSeedOfOther reports whether a different node on this host has the address,
// according to the seeds. If every node has a loopback address of its own, the only
// seed with this node's address is the node itself.
func (c *Config) isSeedOfOther(address string) bool {
	host, _, err := net.SplitHostPort(address)
	here, elsewhere := 0, 0
	for _, seed := range c.Seeds {
		if at, _, err := net.SplitHostPort(seed); err == nil && at == host {
			here++
		} else {
			elsewhere++
		}
	}
	return err == nil && slices.Contains(c.Seeds, address) && (here > 1 || elsewhere == 0)
}

// Loopback reports whether only this machine can reach the node. The only name that
// counts as loopback is localhost, because other names may resolve to anything.
func (c *Config) Loopback() bool {
	for _, a := range []string{c.Advertise, c.PeerListen, c.PeerAdvertise} {
		if a != "" && !loopback(a) {
			return false
		}
	}
	return loopback(c.Listen)
}

// Hosts returns the host names, in lower case, that requests may use for the node,
// besides IP addresses. nil allows any name. A node that only this machine can
// reach never allows any name: with DNS rebinding, a web page could otherwise call
// the node from a browser under the page's own name.
func (c *Config) Hosts() []string {
	if len(c.AllowHosts) == 0 && !loopback(c.Listen) {
		return nil
	}
	hosts := []string{"localhost"}
	for _, h := range c.AllowHosts {
		hosts = append(hosts, strings.ToLower(h))
	}
	for _, address := range []string{c.Listen, c.Advertise, c.PeerListen, c.PeerAdvertise, c.HealthListen} {
		if host, _, err := net.SplitHostPort(address); err == nil && host != "" {
			hosts = append(hosts, strings.ToLower(host))
		}
	}
	return hosts
}

// HealthHosts is like Hosts, but for the health listener.
func (c *Config) HealthHosts() []string {
	if c.HealthListen != "" && !loopback(c.HealthListen) {
		return nil
	}
	return c.Hosts()
}

func loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// checkAddresses rejects unusable addresses. checkExposure checks the
// protection of addresses that other machines can reach.
func (c *Config) checkAddresses(fault func(key, format string, args ...any)) {
	for _, a := range append(append(c.clientAddresses(), c.peerAddresses()...), configuredAddress{key: "health-listen", address: c.HealthListen}) {
		if a.key != "listen" && a.address == "" {
			continue
		}
		if _, _, err := net.SplitHostPort(a.address); err != nil {
			fault(a.key, "must be HOST:PORT, got %q", a.address)
		}
	}
	if len(c.AllowHosts) > maxAllowHosts {
		fault("allow-hosts", "must have at most %d names, got %d", maxAllowHosts, len(c.AllowHosts))
	}
	for _, h := range c.AllowHosts {
		if strings.ContainsAny(h, ":/*[]@ ") || len(h) > maxAddressBytes {
			fault("allow-hosts", "must contain names without a port, got %.64q", h)
		}
	}
	if len(c.AllowOrigins) > maxAllowHosts {
		fault("allow-origins", "must have at most %d origins, got %d", maxAllowHosts, len(c.AllowOrigins))
	}
	for _, o := range c.AllowOrigins {
		if o == "*" {
			if c.Auth != AuthRequired {
				fault("allow-origins", "* lets every web page call a node without authentication: list the origins, or set auth to %s", AuthRequired)
			}
			continue
		}
		if u, err := url.Parse(o); err != nil || u.Scheme != "http" && u.Scheme != "https" || strings.Contains(o, "*") || u.Host == "" || o != strings.ToLower(u.Scheme+"://"+u.Host) {
			fault("allow-origins", "must contain origins such as https://app.example, in lower case and without a path, got %.64q", o)
		}
	}
	if c.Advertise != "" && wildcard(c.Advertise) {
		fault("advertise", "must name a host that clients and other nodes can reach, got %q", c.Advertise)
	}
	if c.PeerAdvertise != "" && wildcard(c.PeerAdvertise) {
		fault("peer-advertise", "must name a host that other nodes can reach, got %q", c.PeerAdvertise)
	}
	several := len(c.Seeds) > 0 || c.MinHosts() > 1
	if c.Advertise == "" && several && wildcard(c.Listen) {
		fault("advertise", "must be set if listen is every interface: use the address at which clients and other nodes reach this node")
	}
	if c.Advertise == "" && c.PeerAdvertise == "" && several && wildcard(c.PeerListen) {
		fault("peer-advertise", "must be set if peer-listen is every interface: use the address at which other nodes reach this node")
	}
	if _, port, err := net.SplitHostPort(c.Listen); err == nil && c.PeerListen == "" {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 65535 {
			fault("peer-listen", "must be set, because there is no port after the port of listen, which is %.64q", port)
		}
	}
}

// wildcard reports whether an address stands for every interface.
func wildcard(address string) bool {
	host, _, err := net.SplitHostPort(address)
	ip := net.ParseIP(host)
	return err == nil && (host == "" || ip != nil && ip.IsUnspecified())
}
