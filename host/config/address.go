package config

import (
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// Addr returns the address that clients reach a node at which listens on
// listening: Advertise where it is given. Port 0 of Advertise stands for the
// port that it listens on.
func (c *Config) Addr(listening net.Addr) string {
	if c.Advertise == "" {
		return listening.String()
	}
	return ownPort(c.Advertise, listening)
}

// PeerAddr is Addr for other nodes and their listener.
func (c *Config) PeerAddr(listening net.Addr) string {
	if c.PeerAdvertise != "" {
		return ownPort(c.PeerAdvertise, listening)
	}
	if host, _, err := net.SplitHostPort(c.Advertise); err == nil {
		return ownPort(net.JoinHostPort(host, "0"), listening)
	}
	return listening.String()
}

// ownPort puts the port that a node listens on in the place of port 0.
func ownPort(advertised string, listening net.Addr) string {
	host, port, err := net.SplitHostPort(advertised)
	if _, own, err2 := net.SplitHostPort(listening.String()); err == nil && err2 == nil && port == "0" {
		return net.JoinHostPort(host, own)
	}
	return advertised
}

// maxPeerPorts bounds the ports that are tried for a peers' listener.
const maxPeerPorts = 100

// PeerListens are the addresses to try in turn for the peers' listener of a
// node whose clients' listens on listening: PeerListen, or the port after that
// of the clients. Nodes of one machine may well have ports in a row: so on a
// loopback address the ports of other nodes' seeds are skipped, and a later one
// will do.
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
		if a := net.JoinHostPort(host, strconv.Itoa(port)); !c.isAnothers(a) {
			out = append(out, a)
		}
	}
	return out
}

// PassedOver is the first address that PeerListens leaves to another node, the
// port after that of the clients; empty where it leaves none, or names it.
func (c *Config) PassedOver(listening net.Addr) string {
	host, text, err := net.SplitHostPort(listening.String())
	if err != nil || c.PeerListen != "" || !loopback(c.Listen) || strings.HasSuffix(c.Listen, ":0") {
		return ""
	}
	port, err := strconv.Atoi(text)
	if a := net.JoinHostPort(host, strconv.Itoa(port+1)); err == nil && c.isAnothers(a) {
		return a
	}
	return ""
}

// isAnothers reports whether an address of this host is among the seeds as that
// of another node. If nodes have a loopback address each, the only seed at this
// one's is its own.
func (c *Config) isAnothers(address string) bool {
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

// Loopback reports whether the node can be reached from this machine only. A
// name counts only when it is localhost: others may resolve to anything.
func (c *Config) Loopback() bool {
	for _, a := range []string{c.Advertise, c.PeerListen, c.PeerAdvertise} {
		if a != "" && !loopback(a) {
			return false
		}
	}
	return loopback(c.Listen)
}

// Hosts are the names, in lower case, by which the node may be called besides
// IP addresses and localhost; none where it may be by all. A node that only
// this machine reaches has no other: a page whose name was made to lead here
// has a browser call it by that name.
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

// HealthHosts are Hosts for the listener that answers how the node is.
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

// checkAddresses refuses addresses that nobody could use. What guards those
// that others can reach is looked at by checkGuards.
func (c *Config) checkAddresses(fault func(key, format string, args ...any)) {
	for _, a := range append(append(c.clientAddresses(), c.peerAddresses()...), given{key: "health-listen", address: c.HealthListen}) {
		if a.key != "listen" && a.address == "" {
			continue
		}
		if _, _, err := net.SplitHostPort(a.address); err != nil {
			fault(a.key, "is %q, must be HOST:PORT", a.address)
		}
	}
	if len(c.AllowHosts) > maxAllowHosts {
		fault("allow-hosts", "has %d names, at most %d are used", len(c.AllowHosts), maxAllowHosts)
	}
	for _, h := range c.AllowHosts {
		if strings.ContainsAny(h, ":/*[]@ ") || len(h) > maxAddressBytes {
			fault("allow-hosts", "has %.64q, which must be a name without a port", h)
		}
	}
	if len(c.AllowOrigins) > maxAllowHosts {
		fault("allow-origins", "has %d origins, at most %d are used", len(c.AllowOrigins), maxAllowHosts)
	}
	for _, o := range c.AllowOrigins {
		if o == "*" {
			if c.Auth != AuthRequired {
				fault("allow-origins", "is *, which lets every page call a node that does not ask who calls: name the origins, or set auth to %s", AuthRequired)
			}
			continue
		}
		if u, err := url.Parse(o); err != nil || u.Scheme != "http" && u.Scheme != "https" || strings.Contains(o, "*") || u.Host == "" || o != strings.ToLower(u.Scheme+"://"+u.Host) {
			fault("allow-origins", "has %.64q, which must be an origin such as https://app.example, in lower case and without a path", o)
		}
	}
	if c.Advertise != "" && wildcard(c.Advertise) {
		fault("advertise", "is %q, which names no host: give the one that clients and other nodes reach", c.Advertise)
	}
	if c.PeerAdvertise != "" && wildcard(c.PeerAdvertise) {
		fault("peer-advertise", "is %q, which names no host: give the one that the other nodes reach", c.PeerAdvertise)
	}
	several := len(c.Seeds) > 0 || c.PlaceFrom() > 1
	if c.Advertise == "" && several && wildcard(c.Listen) {
		fault("advertise", "is empty and listen is every interface: give the address that clients and other nodes reach")
	}
	if c.Advertise == "" && c.PeerAdvertise == "" && several && wildcard(c.PeerListen) {
		fault("peer-advertise", "is empty and peer-listen is every interface: give the address that the other nodes reach")
	}
	if _, port, err := net.SplitHostPort(c.Listen); err == nil && c.PeerListen == "" {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 65535 {
			fault("peer-listen", "is empty and the port of listen is %.64q, which has none after it: give the address where other nodes are served", port)
		}
	}
}

// wildcard reports that an address names no host that one could call.
func wildcard(address string) bool {
	host, _, err := net.SplitHostPort(address)
	ip := net.ParseIP(host)
	return err == nil && (host == "" || ip != nil && ip.IsUnspecified())
}
