// Package openapi describes plain HTTP for entity types as an OpenAPI document.
// It does no I/O and starts no goroutine.
package openapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/hostd/hostd/abi/manifest"
)

// tree is a JSON object.
type tree = map[string]any

// Type is an entity type, and the module that declares it.
type Type struct {
	*manifest.EntityType
	Module *manifest.Manifest
	Digest string // SHA-256 of the module in lower-case hex
}

// ErrTooLarge is returned if a document would exceed its limit.
var ErrTooLarge = errors.New("the description is too large")

// Document describes the paths of plain HTTP for some types, as JSON without
// spaces. about are paragraphs about the document. The document has at most
// limit bytes; 0 means no limit.
// https://spec.openapis.org/oas/v3.1.0
func Document(types []Type, about []string, limit int) ([]byte, error) {
	w := &apiWriter{components: fixedComponents(), taken: map[string]int{}, operations: map[string]bool{}, known: map[string]string{}, limit: limit}
	for name := range w.components {
		w.taken[name] = 1
	}
	if slices.ContainsFunc(types, func(t Type) bool { return t.Kind == manifest.Workflow }) {
		w.taken["Run"], w.taken["RunHistory"] = 1, 1
	}
	if limit > 0 && estimate(types) > 2*limit {
		return nil, ErrTooLarge
	}
	paths, tags, versions := tree{}, []any{}, []string{}
	for _, t := range types {
		if err := w.entity(paths, t); err != nil {
			return nil, err
		}
		tags = append(tags, tree{"name": t.Name})
		if v := t.Module.Version; v != "" && !slices.Contains(versions, v) {
			versions = append(versions, v)
		}
	}
	if len(versions) == 0 {
		versions = []string{"0"}
	}
	doc := tree{
		"openapi":           "3.1.0",
		"jsonSchemaDialect": "https://json-schema.org/draft/2020-12/schema",
		"info": tree{
			"title":       title(types),
			"version":     strings.Join(versions, ", "),
			"description": strings.Join(about, "\n\n"),
		},
		"servers": []any{tree{"url": "/"}},
		"tags":    tags,
		"paths":   paths,
		// A node without authentication accepts calls without a token.
		"security": []any{tree{}, tree{"token": []any{}}},
		"components": tree{
			"schemas":         w.components,
			"securitySchemes": tree{"token": tree{"type": "http", "scheme": "bearer"}},
		},
	}
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if err := e.Encode(doc); err != nil {
		return nil, err
	}
	if limit > 0 && out.Len() > limit {
		return nil, ErrTooLarge
	}
	return out.Bytes(), nil
}

// estimate returns the approximate size of a document, so that a document that
// is far too large is rejected before it is made.
func estimate(types []Type) int {
	n := 0
	counted := map[string]bool{}
	for _, t := range types {
		n += 3000 + 2500*len(t.forClients()) + 4000*len(t.Queries) + 400*len(t.Events)
		if !counted[t.Digest] {
			counted[t.Digest] = true
			n += t.Module.Size()
		}
	}
	return n
}

func title(types []Type) string {
	if len(types) == 0 {
		return "No entity types"
	}
	names := make([]string, len(types))
	for i, t := range types {
		names[i] = t.Name
	}
	return "Entities of the types " + strings.Join(names, ", ")
}

type apiWriter struct {
	components tree
	taken      map[string]int  // names of components, with their last suffix
	operations map[string]bool // ids of operations
	of         Type
	known      map[string]string // names of components, by module and $defs

	// A reference to a component can be many times as long as the module's own
	// reference, so the bytes of names and references are counted.
	named, limit int
}

// charge counts the bytes of a name or reference, and fails if they exceed the
// limit of the document.
func (w *apiWriter) charge(name string) error {
	if w.named += len(name); w.limit > 0 && w.named > w.limit {
		return ErrTooLarge
	}
	return nil
}

// operation returns a unique id of an operation.
func (w *apiWriter) operation(words ...string) string {
	id := strings.Join(words, ".")
	for w.operations[id] {
		id += "_"
	}
	w.operations[id] = true
	return id
}

// forClients returns the commands that clients may send.
func (t Type) forClients() []manifest.Named {
	return slices.DeleteFunc(slices.Clone(t.Commands), func(c manifest.Named) bool { return c.Internal })
}

func decode(text []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var v any
	err := d.Decode(&v)
	return v, err
}

var unfit = regexp.MustCompile(`[^A-Za-z0-9._-]`)

// take returns a free name of a component: the words, with a number if they are
// taken.
func (w *apiWriter) take(words ...string) string {
	name := unfit.ReplaceAllString(strings.Join(words, "."), "_")
	free := name
	for w.taken[free] > 0 {
		w.taken[name]++ // the suffixes before it are taken too
		free = name + strconv.Itoa(w.taken[name])
	}
	w.taken[free] = 1
	return free
}

func component(name string) tree { return tree{"$ref": "#/components/schemas/" + name} }

// schema adds a component for a schema and returns a reference to it.
func (w *apiWriter) schema(t Type, text json.RawMessage, words ...string) (tree, error) {
	if text == nil {
		return tree{}, nil
	}
	root, err := decode(text)
	if err != nil {
		return nil, err
	}
	name := w.take(append([]string{t.Name}, words...)...)
	w.of = t
	return component(name), w.put(name, root)
}

// put adds a component for a schema. The schema's own $defs become separate
// components.
func (w *apiWriter) put(name string, root any) error {
	if err := w.charge(name); err != nil {
		return err
	}
	own := map[string]string{}
	m, _ := root.(tree)
	mine, _ := m["$defs"].(tree)
	for _, def := range slices.Sorted(maps.Keys(mine)) {
		own[def] = w.take(name, def)
		if err := w.charge(own[def]); err != nil {
			return err
		}
	}
	w.components[name] = true // reserves the name in the meantime
	made, err := w.refit(root, name, own)
	if err != nil {
		return err
	}
	if made, ok := made.(tree); ok {
		delete(made, "$defs")
		delete(made, "$schema")
	}
	w.components[name] = made
	for _, def := range slices.Sorted(maps.Keys(mine)) {
		if w.components[own[def]], err = w.refit(mine[def], name, own); err != nil {
			return err
		}
	}
	return nil
}

// refit copies a schema and replaces its references by references to
// components.
func (w *apiWriter) refit(schema any, root string, own map[string]string) (any, error) {
	switch v := schema.(type) {
	case []any:
		out := make([]any, len(v))
		for i := range v {
			var err error
			if out[i], err = w.refit(v[i], root, own); err != nil {
				return nil, err
			}
		}
		return out, nil
	case tree:
		out := tree{}
		for _, name := range slices.Sorted(maps.Keys(v)) {
			var err error
			switch name {
			case "$ref":
				given, _ := v[name].(string)
				var ref string
				if ref, err = w.reference(given, root, own); ref != "" {
					out[name] = ref
				}
			case "const", "enum", "default", "examples", "required", "dependentRequired":
				out[name] = v[name]
			case "properties", "patternProperties", "dependentSchemas":
				list, _ := v[name].(tree)
				below := tree{}
				for _, member := range slices.Sorted(maps.Keys(list)) {
					if below[member], err = w.refit(list[member], root, own); err != nil {
						return nil, err
					}
				}
				out[name] = below
			case "$defs":
			default:
				out[name], err = w.refit(v[name], root, own)
			}
			if err != nil {
				return nil, err
			}
		}
		return out, nil
	}
	return schema, nil
}

// reference returns a reference to a component or to a part of one. It returns ""
// if the reference points to nothing, because nodes check only the references of
// schemas, and not references in members that are only descriptions.
func (w *apiWriter) reference(ref, root string, own map[string]string) (string, error) {
	pointer, ok := strings.CutPrefix(ref, "#")
	if !ok {
		return "", nil
	}
	rest, shared := strings.CutPrefix(pointer, "/$defs/")
	if !shared {
		out := "#/components/schemas/" + root + pointer
		return out, w.charge(out)
	}
	token, below, _ := strings.Cut(rest, "/")
	if below != "" {
		below = "/" + below
	}
	def := strings.NewReplacer("~1", "/", "~0", "~").Replace(token)
	name, is := own[def]
	if !is {
		key := w.of.Digest + "\x00" + def
		if name, is = w.known[key]; !is {
			text, is := w.of.Module.Defs[def]
			if !is {
				return "", nil
			}
			inner, err := decode(text)
			if err != nil {
				return "", err
			}
			name = w.take(def)
			w.known[key] = name
			if err := w.put(name, inner); err != nil {
				return "", err
			}
		}
	}
	out := "#/components/schemas/" + name + below
	return out, w.charge(out)
}

// entity writes the paths of a type.
func (w *apiWriter) entity(paths tree, t Type) error {
	base := "/e/" + url.PathEscape(t.Name)
	id := base + "/{id}"
	input := tree{} // input of a run
	for _, c := range t.forClients() {
		in, back, err := w.pair(t, c, "payload")
		if err != nil {
			return err
		}
		if c.Name == "start" {
			input = in
		}
		headers := tree{
			"ETag":              headerOf("sequence of the entity after the command, in quotes"),
			"Hostd-Duplicate":   headerOf("true if the reply is the stored reply of an earlier command with the same id"),
			"Hostd-Event-Count": headerOf("number of events that the command emitted"),
			"Hostd-Fuel":        headerOf("fuel that the command used"),
			"Hostd-Node-Id":     headerOf("id of the node that answered"),
		}
		rejected := w.failure("The module rejected the command; code and message are its own.")
		if c.Rejections != nil {
			codes := []any{}
			for _, code := range c.Rejections {
				codes = append(codes, code)
			}
			name := w.take(t.Name, c.Name, "rejection")
			w.components[name] = tree{"allOf": []any{component("Problem"), tree{"type": "object", "properties": tree{"code": tree{"enum": codes}}}}}
			rejected["content"] = tree{"application/json": tree{"schema": component(name)}}
		}
		paths[id+"/"+url.PathEscape(c.Name)] = tree{
			"parameters": []any{idParameter()},
			"post": tree{
				"tags": []any{t.Name}, "operationId": w.operation(t.Name, c.Name), "summary": "Send the command " + c.Name,
				"parameters": []any{
					parameter("Idempotency-Key", "header", "id of the command; a retry with the same id returns the first reply and has no second effect", tree{"type": "string", "maxLength": 128}),
					parameter("Hostd-First-Attempt-Age", "header", "time since the first attempt with this id, such as 1500ms, if its outcome is unknown", tree{"type": "string"}),
					parameter("If-Match", "header", "expected sequence of the entity, in quotes; or several, or *", tree{"type": "string"}),
					parameter("If-None-Match", "header", "*: the entity must not exist", tree{"type": "string", "const": "*"}),
				},
				"requestBody": body(t, in),
				"responses": w.responses(tree{
					"200": tree{"description": "The command is durable.", "headers": headers, "content": content(t, back)},
					"204": tree{"description": "The command is durable, and its reply is empty.", "headers": headers},
					"409": w.failure("The outcome of an earlier attempt is unknown."),
					"412": w.failure("The entity is at a different sequence."),
					"422": rejected,
				}),
			},
		}
	}
	for _, q := range t.Queries {
		in, back, err := w.pair(t, q, "query")
		if err != nil {
			return err
		}
		stale := parameter("consistency", "query", "stale answers from memory, without a check that the state is the latest", tree{"enum": []any{"linearizable", "stale"}})
		answers := w.responses(tree{
			"200": tree{"description": "The answer of the query.", "headers": tree{"ETag": headerOf("sequence of the entity, in quotes")}, "content": content(t, back)},
			"204": tree{"description": "The answer is empty."},
			"422": w.failure("The module rejected the query; code and message are its own."),
		})
		get := tree{
			"tags": []any{t.Name}, "operationId": w.operation(t.Name, "q", q.Name), "summary": "Run the query " + q.Name,
			"parameters": []any{stale}, "responses": answers,
		}
		if t.Encoding == manifest.JSON {
			given := parameter("payload", "query", "payload of the query, as JSON", nil)
			delete(given, "schema")
			given["content"] = tree{"application/json": tree{"schema": in}}
			get["parameters"] = []any{stale, given}
		}
		paths[id+"/q/"+url.PathEscape(q.Name)] = tree{
			"parameters": []any{idParameter()}, "get": get,
			"post": tree{
				"tags": []any{t.Name}, "operationId": w.operation(t.Name, "q", q.Name, "post"), "summary": "Run the query " + q.Name + " with a large payload",
				"parameters": []any{stale}, "requestBody": body(t, in), "responses": answers,
			},
		}
	}
	state, err := w.schema(t, t.State, "state")
	if err != nil {
		return err
	}
	paths[id] = tree{
		"parameters": []any{idParameter()},
		"get": tree{
			"tags": []any{t.Name}, "operationId": w.operation(t.Name), "summary": "Get the state",
			"parameters": []any{
				parameter("at", "query", "return the state after the event with this sequence", tree{"type": "integer", "minimum": 0}),
				parameter("If-Match", "header", "expected sequences of the entity, in quotes", tree{"type": "string"}),
				parameter("If-None-Match", "header", "sequences, in quotes, of states that the caller has", tree{"type": "string"}),
			},
			"responses": w.responses(tree{
				"200": tree{"description": "The state.", "headers": tree{"ETag": headerOf("sequence of the entity, in quotes")}, "content": content(t, state)},
				"204": tree{"description": "The state is empty."},
				"304": tree{"description": "The caller has this state."},
				"412": w.failure("The entity is at a different sequence."),
			}),
		},
	}
	w.runs(paths, t, input)
	event, err := w.event(t)
	if err != nil {
		return err
	}
	paths[base+"/events"] = tree{"get": tree{
		"tags": []any{t.Name}, "operationId": w.operation(t.Name, "events"), "summary": "Follow the events of the type",
		"description": "The request needs the header Accept: text/event-stream. The data of each message is JSON that matches the schema " + event + ", or a CloudEvent for application/cloudevents+json. For application/cloudevents-batch+json the response is a list of CloudEvents.",
		"parameters": []any{
			parameter("tag", "query", "return only events with this tag", tree{"type": "string"}),
			parameter("cursor", "query", "cursor after which the stream continues", tree{"type": "string"}),
			parameter("Last-Event-ID", "header", "cursor after which the stream continues; browsers send it when they reconnect", tree{"type": "string"}),
			parameter("follow", "query", "false: end the stream at the newest event", tree{"type": "boolean"}),
			parameter("format", "query", "cloudevents: the data of each message is a CloudEvent", tree{"type": "string", "enum": []any{"cloudevents"}}),
			parameter("limit", "query", "number of events of a list", tree{"type": "integer", "minimum": 1, "maximum": 1000}),
			asList(parameter("shards", "query", "return only the events of these shards", tree{"type": "array", "items": tree{"type": "integer"}})),
			parameter("skip_truncated", "query", "continue after events that were truncated", tree{"type": "boolean"}),
			parameter("upcast", "query", "convert events of older types to current ones", tree{"type": "boolean"}),
		},
		"responses": w.responses(tree{"200": tree{"description": "The events.", "headers": tree{"Hostd-Cursor": headerOf("cursor after the last event of a list")}, "content": tree{
			"text/event-stream":                  tree{"schema": tree{"type": "string"}},
			"application/cloudevents-batch+json": tree{"schema": tree{"type": "array", "items": component("CloudEvent")}},
		}}}),
	}}
	return nil
}

// event adds a component for the events of a type.
func (w *apiWriter) event(t Type) (string, error) {
	one := []any{}
	for _, e := range t.Events {
		name := w.take(t.Name, e.Type, "event")
		members := tree{"type": tree{"const": e.Type}}
		if t.Encoding == manifest.JSON {
			data, err := w.schema(t, e.Schema, e.Type)
			if err != nil {
				return "", err
			}
			members["json"] = data
		}
		w.components[name] = tree{"allOf": []any{component("Event"), tree{"type": "object", "properties": members}}}
		one = append(one, component(name))
	}
	name := w.take(t.Name, "event")
	w.components[name] = component("Event")
	if len(one) > 0 {
		w.components[name] = tree{"anyOf": append(one, component("Event"))}
	}
	return name, nil
}

func (w *apiWriter) pair(t Type, n manifest.Named, word string) (in, back tree, err error) {
	if in, err = w.schema(t, n.Schema, n.Name, word); err == nil {
		back, err = w.schema(t, n.Reply, n.Name, "reply")
	}
	return in, back, err
}

// responses returns the responses of an operation together with the common
// ones.
func (w *apiWriter) responses(own tree) tree {
	own["400"] = w.failure("The request is invalid, or its payload does not match the schema.")
	own["404"] = w.failure("The path, type, command, query or entity does not exist.")
	own["default"] = w.failure("Any other failure.")
	return own
}

func (w *apiWriter) failure(why string) tree {
	return tree{"description": why, "content": tree{"application/json": tree{"schema": component("Problem")}}}
}

func content(t Type, schema tree) tree {
	if t.Encoding == manifest.Bytes {
		return tree{"application/octet-stream": tree{}}
	}
	return tree{"application/json": tree{"schema": schema}}
}

func body(t Type, schema tree) tree { return tree{"content": content(t, schema)} }

func headerOf(doc string) tree {
	return tree{"description": doc, "schema": tree{"type": "string"}}
}

func idParameter() tree {
	p := parameter("id", "path", "id of the entity, percent-encoded", tree{"type": "string", "minLength": 1, "maxLength": 256})
	p["required"] = true
	return p
}

func parameter(name, in, doc string, schema any) tree {
	return tree{"name": name, "in": in, "description": doc, "schema": schema}
}

// asList makes a parameter a comma-separated list.
func asList(p tree) tree {
	p["style"], p["explode"] = "form", false
	return p
}

// fixedComponents returns the components that every client has.
func fixedComponents() tree {
	str := tree{"type": "string"}
	return tree{
		"Problem": tree{
			"type": "object", "required": []any{"code", "message"}, "description": "A failure.",
			"properties": tree{
				"code": str, "message": str, "reason": str, "actualSequence": str,
				"violations": tree{"type": "array", "items": tree{"type": "object", "properties": tree{"field": str, "description": str}, "required": []any{"field", "description"}}},
			},
		},
		"Event": tree{
			"type": "object", "required": []any{"entityId", "sequence", "type"}, "description": "An event of an entity.",
			"properties": tree{
				"entityId": str, "sequence": str, "type": str, "storedType": str, "json": tree{}, "data": str, "commandId": str,
				"recordedAt": tree{"type": "string", "format": "date-time"}, "moduleDigest": str,
				"tags": tree{"type": "array", "items": str}, "principal": tree{"type": "object"}, "skipped": str,
			},
		},
		"CloudEvent": tree{
			"type": "object", "required": []any{"specversion", "id", "source", "type"}, "description": "An event of an entity as a CloudEvent.",
			"properties": tree{
				"specversion": tree{"const": "1.0"}, "id": str, "source": tree{"type": "string", "format": "uri-reference"}, "type": str, "subject": str,
				"time": tree{"type": "string", "format": "date-time"}, "datacontenttype": str, "data": tree{}, "data_base64": str,
			},
			"additionalProperties": str, // extensions
		},
	}
}
