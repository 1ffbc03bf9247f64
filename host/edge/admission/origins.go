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

// Errors for requests that a browser was made to send.
var (
	errForeignOrigin = errors.New("the request comes from a web page of a different origin: add the origin to allow-origins")
	errForeignHost   = errors.New("the request's Host is not a name of this node: add it to allow-hosts")
)

// Origins rejects requests that a page of a different site makes a browser send.
// Without this check, if callers are not authenticated, any page could use the
// node through a browser that can reach it.
//
// A page cannot prevent the browser from stating the origin of a request, in
// Sec-Fetch-Site or Origin. Programs send neither of these headers, and are
// admitted. A page whose own host name was made to resolve to this node (DNS
// rebinding) has the same origin as the node; it is recognized by its Host
// header, if hosts are configured. Health probes are always answered, and
// pages of allowed origins are admitted.
func Origins(next http.Handler, hosts, allowed []string) http.Handler {
	refuse := connect.NewErrorWriter()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var fault error
		switch {
		case isProbe(r):
		case foreignOrigin(r) && !allowedOrigin(r, allowed):
			fault = errForeignOrigin
		case len(hosts) > 0 && !isKnownHost(r.Host, hosts):
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

// foreignOrigin reports whether a browser states that the request comes from a
// different origin. http.CrossOriginProtection does the same but allows every
// GET request, and queries can be sent by GET.
func foreignOrigin(r *http.Request) bool {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "":
	case "same-origin", "none": // none: the user entered the address
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

// isKnownHost reports whether the Host header may be used for this node: an IP
// address, which no page can have as its name, localhost, or a host of the list.
// Only programs send no host.
func isKnownHost(host string, hosts []string) bool {
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
