package admission

import (
	"errors"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"connectrpc.com/connect"
)

// Refusals of what a browser was made to send.
var (
	errForeignOrigin = errors.New("a page of another origin asks: browsers may call a node from its own origin and those of allow-origins")
	errForeignHost   = errors.New("the node is not known by this Host: name it in allow-hosts")
)

// Origins refuses what a page of another site has a browser send. Where
// callers are not authenticated, that a browser can reach the node would be all
// that it takes.
//
// A page cannot keep a browser from saying where a request comes from, in
// Sec-Fetch-Site or Origin. Programs send neither, and are let through. A page
// whose own name was made to lead to this node, DNS rebinding, is of the same
// origin as the node then: it is told by its Host, where there are any hosts.
// Probes of health are answered to all, and pages of the origins that are
// allowed are let through.
func Origins(next http.Handler, hosts, allowed []string) http.Handler {
	refuse := connect.NewErrorWriter()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var fault error
		switch {
		case isProbe(r):
		case foreignOrigin(r) && !allowedOrigin(r, allowed):
			fault = errForeignOrigin
		case len(hosts) > 0 && !known(r.Host, hosts):
			fault = errForeignHost
		}
		switch {
		case fault == nil:
			next.ServeHTTP(w, r)
		case r.Method == http.MethodPost && refuse.IsSupported(r):
			refuse.Write(w, r, connect.NewError(connect.CodePermissionDenied, fault))
		default:
			http.Error(w, fault.Error(), http.StatusForbidden)
		}
	})
}

// foreignOrigin reports whether a browser says that another origin asks.
// net/http has CrossOriginProtection for this; that lets every GET through, and
// queries are answered to GET.
func foreignOrigin(r *http.Request) bool {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "":
	case "same-origin", "none": // none: a person has typed the address
		return false
	default:
		return true
	}
	origin := r.Header.Get("Origin")
	if origin == "" {
		return false
	}
	from, err := url.Parse(origin)
	return err != nil || from.Host == "" || !strings.EqualFold(from.Host, r.Host)
}

// known reports whether a node may be called by a Host: an IP address, which
// no page can take for its name, localhost, or a host of the list. Only programs
// send none.
func known(host string, hosts []string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[]"), "."))
	if host == "" || host == "localhost" || slices.Contains(hosts, host) {
		return true
	}
	_, err := netip.ParseAddr(host)
	return err == nil
}
