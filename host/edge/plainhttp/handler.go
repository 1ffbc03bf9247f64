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

// prefix is the prefix of the paths that this package serves.
const prefix = "/e/"

// Options configure a Handler.
type Options struct {
	Types    Types
	Entities Entities
	// MaxBytes limits the body of a request.
	MaxBytes int
	// Budget is charged for bodies that are read into memory here; nil charges
	// nothing.
	Budget byteBudget
	// Streams limits the streams of the API; nil limits none.
	Streams streams
	// WriteStall is how long a client may leave the end of a stream, or a batch,
	// unread before the response is reset; 0 sets no limit.
	WriteStall time.Duration
	// KeepAlive is how often an idle stream of events sends a comment; default
	// 15 seconds.
	KeepAlive time.Duration
}

// streams limits the number of streams; an *admission.Streams implements it.
type streams interface {
	// KeepPlaces returns a context in which streams keep their places after their
	// end, until release is called.
	KeepPlaces(ctx context.Context) (kept context.Context, release func())
}

// Types knows the entity types.
type Types interface {
	// Encoding returns how payloads of an entity type are encoded.
	Encoding(ctx context.Context, entityType string) (request.Encoding, error)
}

// Entities knows how entities are distributed.
type Entities interface {
	// Shards is the number of shards of the cluster.
	Shards() uint32
	// Cluster returns the id of the cluster.
	Cluster() string
}

// handler converts requests under /e/ to calls of the API.
type handler struct {
	api         http.Handler
	opts        Options
	description description
}

// Wrap converts requests under /e/, and requests for the OpenAPI document of
// these paths, to calls of api. It passes all other requests to api unchanged.
func Wrap(api http.Handler, opts Options) http.Handler {
	if opts.KeepAlive == 0 {
		opts.KeepAlive = 15 * time.Second
	}
	h := &handler{api: api, opts: opts, description: description{turn: make(chan struct{}, 1)}}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasPrefix(r.URL.Path, prefix):
			h.ServeHTTP(w, r)
		case strings.HasPrefix(r.URL.Path, runPrefix):
			h.serveRun(w, r)
		case r.URL.Path == describePath:
			h.describe(w, r)
		default:
			api.ServeHTTP(w, r)
		}
	})
}

// target is the resource of a path.
type target struct {
	entityType, id string
	name           string // name of a command or query; empty for the entity itself
	query          bool
	garbled        bool // a part is not valid UTF-8
}

// targetOf parses a path: /e/TYPE/ID, /e/TYPE/ID/COMMAND or /e/TYPE/ID/q/QUERY.
// It splits the escaped path, so that an id may contain any character,
// percent-encoded. ok is false if the path has a different form.
func targetOf(u *url.URL) (t target, ok bool) {
	parts, garbled, ok := pathParts(u, prefix)
	if !ok {
		return t, false
	}
	t.garbled = garbled
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

// pathParts returns the segments of a path after its prefix, without escapes.
// garbled reports that a segment is not valid UTF-8. ok is false if HTTP
// clients may remove a segment.
func pathParts(u *url.URL, prefix string) (parts []string, garbled, ok bool) {
	parts = strings.Split(strings.TrimPrefix(u.EscapedPath(), prefix), "/")
	for i, p := range parts {
		plain, err := url.PathUnescape(p)
		if err != nil || plain == "" || plain == "." || plain == ".." {
			return nil, false, false
		}
		parts[i] = plain
		garbled = garbled || !utf8.ValidString(plain)
	}
	return parts, garbled, true
}

// eventsID replaces the id in the path of a type's event stream.
const eventsID = "events"

// ServeHTTP implements http.Handler.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	t, ok := targetOf(r.URL)
	if !ok {
		fail(w, http.StatusNotFound, problem{Code: "not_found", Message: "the path must be /e/TYPE/ID, /e/TYPE/ID/COMMAND, /e/TYPE/ID/q/QUERY or /e/TYPE/events; use the API for the ids . and .."})
		return
	}
	if t.garbled {
		// JSON encoders would replace the invalid bytes by U+FFFD, which would
		// be the id of a different entity.
		refusal(w, errors.New("the path is not UTF-8"))
		return
	}
	if err := checkHeaders(r.Header); err != nil {
		refusal(w, err)
		return
	}
	form := noEvents
	if t.name == "" && t.id == eventsID && r.Method == http.MethodGet {
		form = acceptedEvents(r.Header)
	}
	reading := r.Method == http.MethodGet || r.Method == http.MethodHead
	writing := r.Method == http.MethodPost
	switch {
	case t.name == "" && !reading:
		refuseMethod(w, "GET, HEAD")
	case form != noEvents:
		h.events(w, r, t.entityType, form)
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

// checkHeaders rejects headers that become part of a call and are not UTF-8.
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

// parameters parses the query of a URL. A parameter that is not in names, or is
// given twice, is an error.
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
			return nil, fmt.Errorf("the path has no parameters, got %q", name)
		case !slices.Contains(names, name):
			return nil, fmt.Errorf("unknown parameter %q: the path has %s", name, strings.Join(names, ", "))
		case len(values) > 1:
			return nil, fmt.Errorf("the parameter %q is set twice", name)
		}
	}
	return given, nil
}
