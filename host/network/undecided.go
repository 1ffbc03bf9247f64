package network

import (
	"container/list"
	"iter"
	"net"
	"net/netip"
)

// undecided are the connections that have not said what they are, by address.
//
// One flood of silent connections must not push out those of others, so the
// oldest of the address with the most makes room. A search for that address at
// each connection would be work that the flood causes. Addresses lie in ranks
// by their number of connections instead: one connection more or less moves an
// address to the next rank, so all operations take constant time. In a rank the
// address that came to it first is in front; in the first rank, where each has
// one connection, that is the one with the oldest.
//
// It belongs to whoever holds the splitter's lock.
type undecided struct {
	count   int
	by      map[string]*origin
	ranks   []*list.List // of *origin; ranks[n-1] has those with n connections
	highest int          // the highest rank that is not empty; 0: none is
}

// origin is an address that has undecided connections.
type origin struct {
	address string
	conns   list.List // of *pending, the oldest in front
	at      *list.Element
}

// pending is an undecided connection.
type pending struct {
	conn net.Conn
	from *origin
	at   *list.Element // nil once it is none any more
}

// all are the connections.
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

// add notes a connection.
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

// remove forgets a connection, once.
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

// move puts an origin into its rank after its number has changed by one.
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

// cut forgets the oldest connection of the address that has the most. There
// must be one.
func (u *undecided) cut() net.Conn {
	o := u.ranks[u.highest-1].Front().Value.(*origin)
	p := o.conns.Front().Value.(*pending)
	u.remove(p)
	return p.conn
}

// ClientOf is what of a remote address is one client's: the IP address, or the
// network of 64 bits that one client has of IPv6. Of an address of another kind
// it is the host.
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
