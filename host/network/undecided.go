package network

import (
	"container/list"
	"iter"
	"net"
	"net/netip"
)

// undecided is the set of connections that are not yet classified, by remote
// address.
//
// A flood of idle connections from one address must not evict the connections
// of others, so the oldest connection of the address that has the most makes
// room. Searching for that address at each new connection would be work that
// the flood controls. Instead, addresses are kept in ranks by their number of
// connections. Adding or removing a connection moves an address to the
// neighboring rank, so all operations need constant time. The address that
// entered a rank first is at its front; in the first rank, where each address
// has one connection, that is the address with the oldest connection.
//
// The splitter's lock guards it.
type undecided struct {
	count   int
	by      map[string]*origin
	ranks   []*list.List // lists of *origin; ranks[n-1] has the addresses with n connections
	highest int          // the highest rank that is not empty; 0 if all are
}

// origin is an address that has undecided connections.
type origin struct {
	address string
	conns   list.List // list of *pending, the oldest in front
	at      *list.Element
}

// pending is an undecided connection.
type pending struct {
	conn net.Conn
	from *origin
	at   *list.Element // nil after it was removed
}

// all returns the connections, unordered.
func (u *undecided) all() iter.Seq[net.Conn] {
	return func(yield func(net.Conn) bool) {
		for _, o := range u.by {
			for e := o.conns.Front(); e != nil; e = e.Next() {
				if !yield(e.Value.(*pending).conn) {
					return
				}
			}
		}
	}
}

// add adds a connection.
func (u *undecided) add(conn net.Conn) *pending {
	address := ClientOf(conn.RemoteAddr())
	o := u.by[address]
	if o == nil {
		if u.by == nil {
			u.by = map[string]*origin{}
		}
		o = &origin{address: address}
		u.by[address] = o
	}
	p := &pending{conn: conn, from: o}
	before := o.conns.Len()
	p.at = o.conns.PushBack(p)
	u.count++
	u.move(o, before)
	return p
}

// remove removes a connection. Repeated calls have no effect.
func (u *undecided) remove(p *pending) {
	if p.at == nil {
		return
	}
	o := p.from
	before := o.conns.Len()
	o.conns.Remove(p.at)
	p.at = nil
	u.count--
	u.move(o, before)
	if o.conns.Len() == 0 {
		delete(u.by, o.address)
	}
}

// move puts an origin into its rank after its number of connections has changed
// by one from before.
func (u *undecided) move(o *origin, before int) {
	if before > 0 {
		u.ranks[before-1].Remove(o.at)
	}
	if now := o.conns.Len(); now > 0 {
		if now > len(u.ranks) {
			u.ranks = append(u.ranks, list.New())
		}
		o.at = u.ranks[now-1].PushBack(o)
		u.highest = max(u.highest, now)
	}
	for u.highest > 0 && u.ranks[u.highest-1].Len() == 0 {
		u.highest--
	}
}

// cut removes and returns the oldest connection of the address that has the
// most. The set must not be empty.
func (u *undecided) cut() net.Conn {
	o := u.ranks[u.highest-1].Front().Value.(*origin)
	p := o.conns.Front().Value.(*pending)
	u.remove(p)
	return p.conn
}

// ClientOf returns the part of a remote address that identifies a client: the
// IPv4 address, or the /64 network of an IPv6 address, which one client usually
// owns. For other kinds of addresses it returns the host.
func ClientOf(a net.Addr) string {
	at, err := netip.ParseAddrPort(a.String())
	if err != nil {
		if host, _, err := net.SplitHostPort(a.String()); err == nil {
			return host
		}
		return a.Network()
	}
	ip := at.Addr().Unmap().WithZone("")
	if ip.Is6() {
		if network, err := ip.Prefix(64); err == nil {
			return network.String()
		}
	}
	return ip.String()
}
