package plainhttp

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/hostd/hostd/abi/manifest"
	modulev1 "github.com/hostd/hostd/api/gen/hostd/module/v1"
	"github.com/hostd/hostd/api/gen/hostd/module/v1/modulev1connect"
	"github.com/hostd/hostd/host/openapi"
)

// describePath is the path of the OpenAPI document.
const describePath = "/openapi.json"

// Bounds of the document.
const (
	maxDescribedTypes = 256
	maxDescription    = 4 << 20 // bytes
	maxModulePages    = 64      // pages of the listing, of 1 MiB each
	describeDeadline  = 30 * time.Second
)

// description caches the last document, because it changes only with the
// modules that serve, and most callers see the same types. One document is made
// at a time.
type description struct {
	turn chan struct{} // has one slot; made by Wrap
	key  string        // identifies the types and their modules
	text []byte
	tag  string // ETag
}

// served is an entity type and the digest of the module that serves it.
type served struct{ entityType, digest string }

// describe serves the OpenAPI document of all entity types, or only of the
// types that the parameter type names. It reads the listing of modules, or
// the module of each named type, by calls of the API, so authentication,
// roles, limits and the audit log apply to these calls.
func (h *handler) describe(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		refuseMethod(w, "GET, HEAD")
		return
	}
	given, err := parameters(r, "type")
	if err == nil {
		err = plainBody(r)
	}
	if err != nil {
		refusal(w, err)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), describeDeadline) // one deadline for all calls together
	defer cancel()
	r = r.WithContext(ctx)
	var types []served
	ok := false
	if given.Has("type") {
		types, ok = h.namedTypes(w, r, strings.Split(given.Get("type"), ","))
	} else {
		types, ok = h.servedTypes(w, r)
	}
	if !ok {
		return
	}
	text, tag, ok := h.document(w, r, types)
	if !ok {
		return
	}
	w.Header().Set("ETag", tag)
	if hasTag(r, tag) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	write(w, jsonType, text)
}

// hasTag reports whether If-None-Match lists the tag. It compares weakly.
// https://www.rfc-editor.org/rfc/rfc9110#section-13.1.2
func hasTag(r *http.Request, tag string) bool {
	for one := range strings.SplitSeq(strings.Join(r.Header.Values("If-None-Match"), ","), ",") {
		if one = strings.Trim(one, " \t"); one == "*" || strings.TrimPrefix(one, "W/") == tag {
			return true
		}
	}
	return false
}

// tooLarge writes the error for a document that exceeds a bound.
func tooLarge(w http.ResponseWriter, why string) {
	fail(w, http.StatusUnprocessableEntity, problem{Code: "out_of_range", Message: why + ": name some types, such as " + describePath + "?type=counter,order"})
}

// servedTypes returns the types that the caller sees, sorted by name. It returns
// false if a call failed; the error is already written then.
func (h *handler) servedTypes(w http.ResponseWriter, r *http.Request) (out []served, ok bool) {
	token := ""
	for range maxModulePages {
		var res modulev1.ListModulesResponse
		if !h.unary(w, r, modulev1connect.ModuleServiceListModulesProcedure, &res, func() (io.Reader, error) {
			body, err := proto.Marshal(&modulev1.ListModulesRequest{PageToken: token})
			return bytes.NewReader(body), err
		}) {
			return nil, false
		}
		for _, m := range res.GetModules() {
			for _, name := range m.GetActiveFor() {
				if len(out) == maxDescribedTypes {
					tooLarge(w, fmt.Sprintf("the cluster has more than %d entity types", maxDescribedTypes))
					return nil, false
				}
				out = append(out, served{name, m.GetDigest()})
			}
		}
		if token = res.GetNextPageToken(); token == "" {
			slices.SortFunc(out, func(a, b served) int { return strings.Compare(a.entityType, b.entityType) })
			// A type is on two pages if a different module began to serve it meanwhile.
			return slices.CompactFunc(out, func(a, b served) bool { return a.entityType == b.entityType }), true
		}
	}
	tooLarge(w, "the cluster has too many modules")
	return nil, false
}

// namedTypes returns the types with these names, sorted by name.
func (h *handler) namedTypes(w http.ResponseWriter, r *http.Request, names []string) (out []served, ok bool) {
	slices.Sort(names)
	names = slices.Compact(names)
	if len(names) > maxDescribedTypes {
		tooLarge(w, fmt.Sprintf("%d entity types are named, at most %d are allowed in one request", len(names), maxDescribedTypes))
		return nil, false
	}
	for _, name := range names {
		digest, _, ok := h.module(w, r, map[string]string{"entityType": name})
		if !ok {
			return nil, false
		}
		out = append(out, served{name, digest})
	}
	return out, true
}

// module returns the digest and the manifest of a module.
func (h *handler) module(w http.ResponseWriter, r *http.Request, req map[string]string) (digest string, text json.RawMessage, ok bool) {
	var res struct {
		Module struct {
			Digest string `json:"digest"`
		} `json:"module"`
		Manifest json.RawMessage `json:"manifest"`
	}
	// Use JSON, because the numbers of the manifest keep their digits in it.
	ok = h.ask(w, r, modulev1connect.ModuleServiceGetModuleProcedure, jsonType, func() (io.Reader, error) {
		body, err := json.Marshal(req)
		return bytes.NewReader(body), err
	}, func(body []byte) error { return json.Unmarshal(body, &res) })
	return res.Module.Digest, res.Manifest, ok
}

// document returns the document of some types and its tag. A caller that may
// list modules, or read the module of a type, may also read the manifests, so a
// cached document reveals nothing more.
func (h *handler) document(w http.ResponseWriter, r *http.Request, types []served) (text []byte, tag string, ok bool) {
	key := fmt.Sprint(types)
	d := &h.description
	select {
	case d.turn <- struct{}{}:
		defer func() { <-d.turn }()
	case <-r.Context().Done():
		fail(w, http.StatusGatewayTimeout, problem{Code: "deadline_exceeded", Message: context.Cause(r.Context()).Error()})
		return nil, "", false
	}
	if d.key == key && d.text != nil {
		return d.text, d.tag, true
	}
	described, about := make([]openapi.Type, 0, len(types)), []string{"The entity types that the caller may see, as currently served."}
	known := map[string]*manifest.Manifest{} // by digest; nil if it cannot be read
	size := 0
	for _, t := range types {
		m, read := known[t.digest]
		if !read {
			_, text, ok := h.module(w, r, map[string]string{"digest": t.digest})
			if !ok {
				return nil, "", false
			}
			if size += len(text); size > 2*maxDescription {
				tooLarge(w, fmt.Sprintf("the manifests of the modules have more than %d bytes", 2*maxDescription))
				return nil, "", false
			}
			m, _ = manifest.Parse(text) // m is nil after an error
			known[t.digest] = m
		}
		if m == nil {
			about = append(about, fmt.Sprintf("Entity type %s is omitted because the manifest of its module, SHA-256 %s, cannot be read.", t.entityType, t.digest))
			continue
		}
		if entityType, _, ok := m.Type(t.entityType); ok {
			described = append(described, openapi.Type{EntityType: entityType, Module: m, Digest: t.digest})
			about = append(about, fmt.Sprintf("Entity type %s: module %s, SHA-256 %s.", t.entityType, strings.TrimSpace(m.Name+" "+m.Version), t.digest))
		}
	}
	text, err := openapi.Document(described, about, maxDescription)
	switch {
	case errors.Is(err, openapi.ErrTooLarge):
		tooLarge(w, fmt.Sprintf("the description has more than %d bytes", maxDescription))
		return nil, "", false
	case err != nil:
		fail(w, http.StatusInternalServerError, problem{Code: "internal", Message: "internal error"})
		return nil, "", false
	}
	sum := sha256.Sum256(text)
	d.key, d.text, d.tag = key, text, `"`+hex.EncodeToString(sum[:16])+`"`
	return d.text, d.tag, true
}
