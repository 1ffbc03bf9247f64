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

// referrals remembers which addresses serve only clients, and where their nodes
// serve other nodes, as the nodes said in their answers. It helps callers that
// know a node only by its client address, from their seeds or from before the
// cluster version was raised. Referrals are not followed further.
type referrals struct {
	mu sync.Mutex
	to map[string]string
}

// at returns where to call a node that was known at an address.
func (r *referrals) at(address string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if to := r.to[address]; to != "" {
		return to
	}
	return address
}

// At returns where to call a node that was known at an address, as far as the
// node has said.
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
