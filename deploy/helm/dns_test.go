package main

import (
	"math/rand/v2"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// lag is the time for which a name keeps its address after a pod has gone, and
// for which a new pod has no address. In a cluster, the endpoints controller
// and the caches of the name servers cause this delay.
const lag = time.Second

// names is the name server of the cluster.
type names struct {
	mu      sync.Mutex
	records map[string][]record
}

// record is an address of a name, valid from one time until another. A zero
// until means forever.
type record struct {
	address     netip.Addr
	from, until time.Time
}

// serveNames starts a name server until the test ends.
func serveNames(t *testing.T, address string) *names {
	t.Helper()
	n := &names{records: map[string][]record{}}
	started := make(chan struct{})
	server := &dns.Server{Addr: address + ":53", Net: "udp", Handler: n, NotifyStartedFunc: func() { close(started) }}
	ended := make(chan error, 1)
	go func() { ended <- server.ListenAndServe() }()
	select {
	case <-started:
	case err := <-ended:
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Shutdown(); err != nil {
			t.Error(err)
		}
		<-ended
	})
	return n
}

// add gives a name an address, after the lag.
func (n *names) add(name string, address netip.Addr) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.records[name] = append(n.records[name], record{address: address, from: time.Now().Add(lag)})
}

// remove takes an address from a name, after the lag.
func (n *names) remove(name string, address netip.Addr) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for i, r := range n.records[name] {
		if r.address == address && r.until.IsZero() {
			n.records[name][i].until = time.Now().Add(lag)
		}
	}
}

// lookUp returns the current addresses of a name, in any order, and whether the
// name exists.
func (n *names) lookUp(name string) (found []netip.Addr, known bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := time.Now()
	for _, r := range n.records[name] {
		if now.After(r.from) && (r.until.IsZero() || now.Before(r.until)) {
			found = append(found, r.address)
		}
	}
	rand.Shuffle(len(found), func(i, j int) { found[i], found[j] = found[j], found[i] })
	return found, len(found) > 0
}

// ServeDNS implements dns.Handler.
func (n *names) ServeDNS(w dns.ResponseWriter, q *dns.Msg) {
	answer := new(dns.Msg).SetReply(q)
	answer.Authoritative = true
	name := q.Question[0].Name
	found, known := n.lookUp(strings.ToLower(strings.TrimSuffix(name, ".")))
	switch {
	case !known:
		answer.Rcode = dns.RcodeNameError
	case q.Question[0].Qtype == dns.TypeA:
		for _, a := range found {
			answer.Answer = append(answer.Answer, &dns.A{Hdr: dns.RR_Header{Name: name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 5}, A: a.AsSlice()})
		}
	}
	_ = w.WriteMsg(answer) // an error is ignored, because the client asks again
}
