package peer

import (
	"net"
	"net/http"
	"strconv"
	"sync"

	"github.com/hostd/hostd/host/network"
)

// maxReferrals bounds the addresses whose referral is remembered.
const maxReferrals = 1024

// referrals remembers the addresses at which nodes serve only clients, and for
// each the address for other nodes, as the answers say. It helps callers that
// know a node only by its client address, from their seeds or from before the
// cluster version was raised. A referral in the answer from the second address
// is not followed.
type referrals struct {
	mu sync.Mutex
	to map[string]string
}

// at returns the address to call for a node that was known at the given
// address.
func (r *referrals) at(address string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if to := r.to[address]; to != "" {
		return to
	}
	return address
}

// At returns the address to call for a node that was known at the given
// address. That is the given address, unless the node has referred to
// another address.
func (p *Peers) At(address string) string { return p.referrals.at(address) }

// forget makes the next call use the address itself, because the node may have
// moved.
func (r *referrals) forget(address string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.to, address)
}

// take records the referral in an answer, if there is one, and reports whether
// there is.
func (r *referrals) take(address string, answer *http.Response) bool {
	if answer.StatusCode != http.StatusNotFound {
		return false
	}
	host, port, err := net.SplitHostPort(answer.Header.Get(network.PeerAddressHeader))
	if err != nil || len(host) > maxNodeIDBytes {
		return false
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return false
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() { // the node listens on every interface
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
