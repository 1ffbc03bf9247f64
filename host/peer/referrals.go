package peer

import (
	"net"
	"net/http"
	"strconv"
	"sync"

	"github.com/hostd/hostd/host/network"
)

// maxReferrals bounds the addresses that are remembered to have referred.
const maxReferrals = 1024

// referrals remember which addresses are for clients alone, and where the nodes
// behind them serve other nodes, by their own word. They are for who knows a
// node by the address that it gives clients, from its seeds or from before the
// cluster's level was raised. What is referred to refers no further.
type referrals struct {
	mu sync.Mutex
	to map[string]string
}

// at is where to call who was known at an address.
func (r *referrals) at(address string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if to := r.to[address]; to != "" {
		return to
	}
	return address
}

// At is where to call a node that was known at an address, as far as it has
// said.
func (p *Peers) At(address string) string { return p.referrals.at(address) }

// forget has the address itself called again: the node may have moved.
func (r *referrals) forget(address string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.to, address)
}

// take takes the answer of an address, and reports whether it refers to
// another.
func (r *referrals) take(address string, answer *http.Response) bool {
	if answer.StatusCode != http.StatusNotFound {
		return false
	}
	host, port, err := net.SplitHostPort(answer.Header.Get(network.PeerAddressHeader))
	if err != nil || len(host) > MaxNodeIDBytes {
		return false
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return false
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() { // it listens on every interface
		host, _, _ = net.SplitHostPort(address)
	}
	to := net.JoinHostPort(host, port)
	if to == address {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.to == nil {
		r.to = map[string]string{}
	}
	for known := range r.to {
		if len(r.to) < maxReferrals {
			break
		}
		delete(r.to, known)
	}
	r.to[address] = to
	return true
}
