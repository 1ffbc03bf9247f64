package plainhttp

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/hostd/hostd/host/request"
)

// prefix begins the paths of this package.
const prefix = "/e/"

// Options say what a Handler needs of its node.
type Options struct {
	// Encoding is how payloads of an entity type are written.
	Encoding func(ctx context.Context, entityType string) (request.Encoding, error)
	// Shards is the number of shards of the cluster.
	Shards func() uint32
	// MaxBytes bounds the body of a request.
	MaxBytes int
	// Budget is charged for bodies that are read into memory here; nil is none.
	Budget Budget
	// KeepAlive is how often a stream of events without any says something; 0 is
	// 15 seconds.
	KeepAlive time.Duration
}

// Handler makes calls of the API from requests under /e/.
type Handler struct {
	api  http.Handler
	opts Options
}

// Wrap has requests under /e/ become calls of api; it gets all others as they
// are.
func Wrap(api http.Handler, opts Options) http.Handler {
	if opts.KeepAlive == 0 {
		opts.KeepAlive = 15 * time.Second
	}
	h := &Handler{api: api, opts: opts}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, prefix) {
			h.ServeHTTP(w, r)
		} else {
			api.ServeHTTP(w, r)
		}
	})
}

// target is what a path names.
type target struct {
	entityType, id string
	name           string // of a command or a query; empty: the entity itself
	query          bool
	garbled        bool // some of it is not UTF-8
}

// targetOf reads a path: /e/TYPE/ID, /e/TYPE/ID/COMMAND or /e/TYPE/ID/q/QUERY.
// It is split as it was sent, so that an id may hold any character, percent-
// encoded. ok is false where it has another form.
func targetOf(u *url.URL) (t target, ok bool) {
	parts := strings.Split(strings.TrimPrefix(u.EscapedPath(), prefix), "/")
	for i, p := range parts {
		plain, err := url.PathUnescape(p)
		if err != nil || plain == "" || plain == "." || plain == ".." {
			return t, false
		}
		parts[i] = plain
		t.garbled = t.garbled || !utf8.ValidString(plain)
	}
	switch {
	case len(parts) == 2:
		t.entityType, t.id = parts[0], parts[1]
	case len(parts) == 3:
		t.entityType, t.id, t.name = parts[0], parts[1], parts[2]
	case len(parts) == 4 && parts[2] == "q":
		t.entityType, t.id, t.name, t.query = parts[0], parts[1], parts[3], true
	default:
		return t, false
	}
	return t, true
}

// eventsID stands in the place of an id for the events of a type, where a
// stream of events is asked for.
const eventsID = "events"

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	t, ok := targetOf(r.URL)
	if !ok {
		fail(w, http.StatusNotFound, problem{Code: "not_found", Message: "the path is none of /e/TYPE/ID, /e/TYPE/ID/COMMAND, /e/TYPE/ID/q/QUERY and /e/TYPE/events; an id of . or .. is for the API alone"})
		return
	}
	if t.garbled {
		// Every writer of JSON would make U+FFFD of it, which is another entity.
		refusal(w, errors.New("the path is not UTF-8"))
		return
	}
	if err := checkHeaders(r.Header); err != nil {
		refusal(w, err)
		return
	}
	reading := r.Method == http.MethodGet || r.Method == http.MethodHead
	writing := r.Method == http.MethodPost
	switch {
	case t.name == "" && !reading:
		refuseMethod(w, "GET, HEAD")
	case t.name == "" && t.id == eventsID && r.Method == http.MethodGet && wantsEvents(r):
		h.events(w, r, t.entityType)
	case t.name == "":
		h.state(w, r, t)
	case t.query && !reading && !writing:
		refuseMethod(w, "GET, HEAD, POST")
	case t.query:
		h.query(w, r, t)
	case !writing:
		refuseMethod(w, "POST")
	default:
		h.command(w, r, t)
	}
}

// wantsEvents reports whether a stream of events is asked for.
func wantsEvents(r *http.Request) bool {
	return slices.ContainsFunc(strings.Split(strings.Join(r.Header.Values("Accept"), ","), ","), func(kind string) bool {
		kind, _, _ = strings.Cut(kind, ";")
		return strings.EqualFold(strings.TrimSpace(kind), "text/event-stream")
	})
}

// checkHeaders refuses those that become part of a call and are not UTF-8.
func checkHeaders(h http.Header) error {
	for _, name := range []string{"Idempotency-Key", "Last-Event-Id", "Hostd-First-Attempt-Age", "If-Match", "If-None-Match"} {
		for _, value := range h[name] {
			if !utf8.ValidString(value) {
				return fmt.Errorf("the header %s is not UTF-8", name)
			}
		}
	}
	return nil
}

func refuseMethod(w http.ResponseWriter, allowed string) {
	w.Header().Set("Allow", allowed)
	fail(w, http.StatusMethodNotAllowed, problem{Code: "unimplemented", Message: "the path takes " + allowed})
}

// parameters reads those of a request's query; one that is not among names, or
// is given twice, is an error.
func parameters(r *http.Request, names ...string) (url.Values, error) {
	given, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, fmt.Errorf("the parameters of the path cannot be read")
	}
	for name, values := range given {
		switch {
		case !utf8.ValidString(name) || slices.ContainsFunc(values, func(v string) bool { return !utf8.ValidString(v) }):
			return nil, fmt.Errorf("the parameter %.64q is not UTF-8", name)
		case !slices.Contains(names, name) && len(names) == 0:
			return nil, fmt.Errorf("the path takes no parameters, and %q is one", name)
		case !slices.Contains(names, name):
			return nil, fmt.Errorf("there is no parameter %q: the path takes %s", name, strings.Join(names, ", "))
		case len(values) > 1:
			return nil, fmt.Errorf("the parameter %q is given twice", name)
		}
	}
	return given, nil
}
