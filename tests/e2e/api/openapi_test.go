package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/pb33f/libopenapi"
	"github.com/pb33f/libopenapi/datamodel"
	"github.com/santhosh-tekuri/jsonschema/v6"

	modulev1 "github.com/hostd/hostd/api/gen/hostd/module/v1"
	"github.com/hostd/hostd/tests/support/testkit"
	"github.com/hostd/hostd/tests/support/testkit/guest"
)

// plain makes a request of plain HTTP and returns the status, the body and the
// tag of the response.
func (s *surface) plain(t *testing.T, method, path, body string, headers ...string) (status int, text []byte, tag string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, s.node.API()+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	res, err := s.http.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err = io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, text, res.Header.Get("ETag")
}

// schemaAt compiles the schema at a JSON pointer of a document.
func schemaAt(t *testing.T, document []byte, pointer string) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(document))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	if err := c.AddResource("http://node/openapi.json", doc); err != nil {
		t.Fatal(err)
	}
	schema, err := c.Compile("http://node/openapi.json#" + pointer)
	if err != nil {
		t.Fatalf("%s: %v", pointer, err)
	}
	return schema
}

// fits returns nil if a JSON text matches a schema.
func fits(t *testing.T, schema *jsonschema.Schema, text []byte) error {
	t.Helper()
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return schema.Validate(v)
}

// TestNodesDescribeTheirTypes checks the OpenAPI document of a node with a
// library, and that the node's requests and responses match it.
func TestNodesDescribeTheirTypes(t *testing.T) {
	s := start(t, testkit.NodeOptions{})
	status, empty, _ := s.plain(t, http.MethodGet, "/openapi.json", "")
	if status != http.StatusOK || !json.Valid(empty) {
		t.Fatalf("without types: %d %s", status, empty)
	}
	s.node.Push("counter", "cart")
	status, document, tag := s.plain(t, http.MethodGet, "/openapi.json", "")
	if status != http.StatusOK {
		t.Fatalf("%d %s", status, document)
	}
	config := datamodel.NewDocumentConfiguration()
	config.SkipCircularReferenceCheck = true
	parsed, err := libopenapi.NewDocumentWithConfiguration(document, config)
	if err != nil {
		t.Fatal(err)
	}
	model, err := parsed.BuildV3Model()
	if err != nil {
		t.Fatal(err)
	}
	if model.Model.Version != "3.1.0" {
		t.Errorf("version %s", model.Model.Version)
	}
	if faults := model.Index.GetReferenceIndexErrors(); len(faults) > 0 {
		t.Errorf("references lead nowhere: %v", faults)
	}
	for _, want := range []string{"/e/counter/{id}/add", "/e/counter/{id}/q/total", "/e/counter/{id}", "/e/counter/events", "/e/cart/{id}"} {
		if _, ok := model.Model.Paths.PathItems.Get(want); !ok {
			t.Errorf("there is no path %s", want)
		}
	}

	const operation = "/paths/~1e~1counter~1{id}~1add/post"
	body, reply := schemaAt(t, document, operation+"/requestBody/content/application~1json/schema"), schemaAt(t, document, operation+"/responses/200/content/application~1json/schema")
	failure := schemaAt(t, document, operation+"/responses/400/content/application~1json/schema")
	for _, c := range []struct {
		body string
		fits bool
	}{{`{"amount":3}`, true}, {`{"amount":true}`, false}, {`{"amout":3}`, false}} {
		status, answer, _ := s.plain(t, http.MethodPost, "/e/counter/a/add", c.body)
		if got := fits(t, body, []byte(c.body)); (got == nil) != c.fits || (status == http.StatusOK) != c.fits {
			t.Errorf("%s: the description says %v, the node %d %s", c.body, got, status, answer)
		}
		schema := reply
		if !c.fits {
			schema = failure
		}
		if err := fits(t, schema, answer); err != nil {
			t.Errorf("%s: the answer %s does not match: %v", c.body, answer, err)
		}
	}
	for path, operation := range map[string]string{"/e/counter/a": "/paths/~1e~1counter~1{id}", "/e/counter/a/q/total": "/paths/~1e~1counter~1{id}~1q~1total"} {
		status, answer, _ := s.plain(t, http.MethodGet, path, "")
		if err := fits(t, schemaAt(t, document, operation+"/get/responses/200/content/application~1json/schema"), answer); err != nil || status != http.StatusOK {
			t.Errorf("%s: %d, the answer %s does not match: %v", path, status, answer, err)
		}
	}
	_, stream, _ := s.plain(t, http.MethodGet, "/e/counter/events?follow=false&upcast=true", "", "Accept", "text/event-stream")
	event, events := schemaAt(t, document, "/components/schemas/counter.event"), 0
	for line := range strings.Lines(string(stream)) {
		if data, ok := strings.CutPrefix(line, "data: "); ok && strings.Contains(data, "entityId") {
			events++
			if err := fits(t, event, []byte(data)); err != nil {
				t.Errorf("the event %s does not match: %v", data, err)
			}
		}
	}
	if events != 1 {
		t.Errorf("the stream has %d events: %s", events, stream)
	}

	for _, tags := range []string{tag, "W/" + tag, `"x", ` + tag, "*"} {
		if status, _, again := s.plain(t, http.MethodGet, "/openapi.json", "", "If-None-Match", tags); status != http.StatusNotModified || again != tag {
			t.Errorf("unchanged since %s: %d %s", tags, status, again)
		}
	}
	status, one, other := s.plain(t, http.MethodGet, "/openapi.json?type=cart", "")
	if status != http.StatusOK || bytes.Contains(one, []byte("/e/counter/")) || !bytes.Contains(one, []byte("/e/cart/")) || other == tag {
		t.Errorf("one type: %d %s", status, one)
	}
	var many strings.Builder
	for i := range 300 {
		fmt.Fprintf(&many, "t%d,", i)
	}
	for path, want := range map[string]int{
		"/openapi.json?type=none": http.StatusNotFound, "/openapi.json?tpye=cart": http.StatusBadRequest, "/openapi.json?type=%2F": http.StatusBadRequest,
		"/openapi.json?type=": http.StatusBadRequest, "/openapi.json?type=" + many.String(): http.StatusUnprocessableEntity,
	} {
		if status, text, _ := s.plain(t, http.MethodGet, path, ""); status != want || !json.Valid(text) {
			t.Errorf("%.40s: %d %s, want %d", path, status, text, want)
		}
	}
	if status, text, _ := s.plain(t, http.MethodPost, "/openapi.json", "{}"); status != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d %s", status, text)
	}

	// Activating a different module for one type changes the document. Numbers in
	// the document keep all their digits.
	m := guest.Module{Manifest: `{"abi":1,"name":"x","entityTypes":[{"name":"large","kind":"event-sourced","encoding":"json","commands":[{"name":"a","schema":{"properties":{"n":{"maximum":9223372036854775806}}}}]}]}`}
	if _, err := s.call(t.Context(), &modulev1.UploadModuleRequest{Wasm: m.Build(), Activate: true}); err != nil {
		t.Fatal(err)
	}
	status, now, changed := s.plain(t, http.MethodGet, "/openapi.json", "", "If-None-Match", tag)
	if status != http.StatusOK || changed == tag || !bytes.Contains(now, []byte(`"maximum":9223372036854775806`)) || !bytes.Contains(now, []byte("/e/counter/{id}/add")) {
		t.Errorf("with another module: %d %s %s", status, changed, now)
	}
}
