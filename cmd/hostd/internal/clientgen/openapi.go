package clientgen

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/hostd/hostd/abi/manifest"
)

// tree is a JSON object.
type tree = map[string]any

// openAPI describes the paths of plain HTTP.
// https://spec.openapis.org/oas/v3.1.0
func openAPI(types []entityType) ([]byte, error) {
	w := &apiWriter{components: fixedComponents(), names: names{}, known: map[string]string{}}
	for name := range w.components {
		w.names[name] = true
	}
	paths, tags, versions := tree{}, []any{}, []string{}
	for _, t := range types {
		if err := w.entity(paths, t); err != nil {
			return nil, err
		}
		tags = append(tags, tree{"name": t.Name})
		if v := t.module.Manifest.Version; v != "" && !slices.Contains(versions, v) {
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
			"title":       "Entities of the types " + strings.Join(entityNames(types), ", "),
			"version":     strings.Join(versions, ", "),
			"description": strings.Join(header(types), "\n\n"),
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
	e.SetIndent("", "  ")
	err := e.Encode(doc)
	return out.Bytes(), err
}

type apiWriter struct {
	components tree
	names      names
	module     Module
	known      map[string]string // names of components, by module and $defs
}

var unfit = regexp.MustCompile(`[^A-Za-z0-9._-]`)

func (w *apiWriter) take(words ...string) string {
	return w.names.take(unfit.ReplaceAllString(strings.Join(words, "."), "_"))
}

func component(name string) tree { return tree{"$ref": "#/components/schemas/" + name} }

// schema adds a component for a schema and returns a reference to it.
func (w *apiWriter) schema(t entityType, text json.RawMessage, words ...string) (tree, error) {
	if text == nil {
		return tree{}, nil
	}
	root, err := decode(text)
	if err != nil {
		return nil, err
	}
	name := w.take(append([]string{t.Name}, words...)...)
	w.module = t.module
	return component(name), w.put(name, root)
}

// put adds a component for a schema. The schema's own $defs become separate
// components.
func (w *apiWriter) put(name string, root any) error {
	own := map[string]string{}
	m, _ := root.(tree)
	mine, _ := m["$defs"].(tree)
	for _, def := range slices.Sorted(maps.Keys(mine)) {
		own[def] = w.take(name, def)
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
				ref, _ := v[name].(string)
				out[name], err = w.reference(ref, root, own)
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

// reference returns a reference to a component or to a part of one.
func (w *apiWriter) reference(ref, root string, own map[string]string) (string, error) {
	pointer, ok := strings.CutPrefix(ref, "#")
	if !ok {
		return "", fmt.Errorf("%s leads out of the module", ref)
	}
	rest, shared := strings.CutPrefix(pointer, "/$defs/")
	if !shared {
		return "#/components/schemas/" + root + pointer, nil
	}
	token, below, _ := strings.Cut(rest, "/")
	if below != "" {
		below = "/" + below
	}
	def := strings.NewReplacer("~1", "/", "~0", "~").Replace(token)
	name, is := own[def]
	if !is {
		key := w.module.Digest + "\x00" + def
		if name, is = w.known[key]; !is {
			inner, err := decode(w.module.Manifest.Defs[def])
			if err != nil {
				return "", fmt.Errorf("%s leads nowhere", ref)
			}
			name = w.take(def)
			w.known[key] = name
			if err := w.put(name, inner); err != nil {
				return "", err
			}
		}
	}
	return "#/components/schemas/" + name + below, nil
}

// entity writes the paths of a type.
func (w *apiWriter) entity(paths tree, t entityType) error {
	base := "/e/" + url.PathEscape(t.Name)
	id := base + "/{id}"
	for _, c := range t.forClients() {
		in, back, err := w.pair(t, c, "payload")
		if err != nil {
			return err
		}
		headers := tree{
			"ETag":              headerOf("the sequence of the entity after the command, in quotes"),
			"Hostd-Duplicate":   headerOf("true where the reply is the stored one of an earlier command with the same id"),
			"Hostd-Event-Count": headerOf("how many events the command emitted"),
			"Hostd-Fuel":        headerOf("what the command has cost"),
			"Hostd-Node-Id":     headerOf("the node that answered"),
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
				"tags": []any{t.Name}, "operationId": t.Name + "." + c.Name, "summary": "Send the command " + c.Name,
				"parameters": []any{
					parameter("Idempotency-Key", "header", "the id of the command: sent again it gets the first reply and has no second effect", tree{"type": "string", "maxLength": 128}),
					parameter("Hostd-First-Attempt-Age", "header", "how many milliseconds ago the command was first tried under its id, with no outcome known", tree{"type": "integer", "minimum": 0}),
					parameter("If-Match", "header", "the sequence at which the entity must be, in quotes", tree{"type": "string"}),
					parameter("If-None-Match", "header", "*: the entity must be new", tree{"type": "string", "const": "*"}),
				},
				"requestBody": body(t, in),
				"responses": w.responses(tree{
					"200": tree{"description": "The command is durable.", "headers": headers, "content": content(t, back)},
					"204": tree{"description": "The command is durable, and its reply is empty.", "headers": headers},
					"409": w.failure("Whether an earlier attempt took effect is forgotten."),
					"412": w.failure("The entity is at another sequence."),
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
		stale := parameter("consistency", "query", "stale answers from memory, without asking whether it is the latest", tree{"enum": []any{"linearizable", "stale"}})
		answers := w.responses(tree{
			"200": tree{"description": "What the query found.", "headers": tree{"ETag": headerOf("the sequence of the entity, in quotes")}, "content": content(t, back)},
			"204": tree{"description": "The answer is empty."},
			"422": w.failure("The module rejected the query; code and message are its own."),
		})
		get := tree{
			"tags": []any{t.Name}, "operationId": t.Name + ".q." + q.Name, "summary": "Ask the query " + q.Name,
			"parameters": []any{stale}, "responses": answers,
		}
		if t.Encoding == manifest.JSON {
			given := parameter("payload", "query", "what the query is given, as JSON", nil)
			delete(given, "schema")
			given["content"] = tree{"application/json": tree{"schema": in}}
			get["parameters"] = []any{stale, given}
		}
		paths[id+"/q/"+url.PathEscape(q.Name)] = tree{
			"parameters": []any{idParameter()}, "get": get,
			"post": tree{
				"tags": []any{t.Name}, "operationId": t.Name + ".q." + q.Name + ".post", "summary": "Ask the query " + q.Name + " with a large payload",
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
			"tags": []any{t.Name}, "operationId": t.Name, "summary": "Get the state",
			"parameters": []any{parameter("at", "query", "after the event with this sequence", tree{"type": "integer", "minimum": 0})},
			"responses": w.responses(tree{
				"200": tree{"description": "The state.", "headers": tree{"ETag": headerOf("the sequence of the entity, in quotes")}, "content": content(t, state)},
				"204": tree{"description": "The state is empty."},
			}),
		},
	}
	event, err := w.event(t)
	if err != nil {
		return err
	}
	paths[base+"/events"] = tree{"get": tree{
		"tags": []any{t.Name}, "operationId": t.Name + ".events", "summary": "Follow the events of the type",
		"description": "The data of each message is JSON, of the schema " + event + ". It takes Accept: text/event-stream.",
		"parameters": []any{
			parameter("tag", "query", "only events with it", tree{"type": "string"}),
			parameter("cursor", "query", "where to go on", tree{"type": "string"}),
			parameter("Last-Event-ID", "header", "where to go on; a browser sends it by itself", tree{"type": "string"}),
			parameter("follow", "query", "false ends the stream at the newest event", tree{"type": "boolean"}),
			asList(parameter("shards", "query", "the events of these shards alone", tree{"type": "array", "items": tree{"type": "integer"}})),
			parameter("skip_cut", "query", "goes on past events that were cut", tree{"type": "boolean"}),
		},
		"responses": w.responses(tree{"200": tree{"description": "The events.", "content": tree{"text/event-stream": tree{"schema": tree{"type": "string"}}}}}),
	}}
	return nil
}

// event adds a component for the events of a type.
func (w *apiWriter) event(t entityType) (string, error) {
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

func (w *apiWriter) pair(t entityType, n manifest.Named, word string) (in, back tree, err error) {
	if in, err = w.schema(t, n.Schema, n.Name, word); err == nil {
		back, err = w.schema(t, n.Reply, n.Name, "reply")
	}
	return in, back, err
}

// responses returns the responses of an operation together with the common
// ones.
func (w *apiWriter) responses(own tree) tree {
	own["400"] = w.failure("The request is wrong, or its payload does not fit the schema.")
	own["404"] = w.failure("No such path, type, command or query, or nothing has happened to the entity.")
	own["default"] = w.failure("Another failure.")
	return own
}

func (w *apiWriter) failure(why string) tree {
	return tree{"description": why, "content": tree{"application/json": tree{"schema": component("Problem")}}}
}

func content(t entityType, schema tree) tree {
	if t.Encoding == manifest.Bytes {
		return tree{"application/octet-stream": tree{}}
	}
	return tree{"application/json": tree{"schema": schema}}
}

func body(t entityType, schema tree) tree { return tree{"content": content(t, schema)} }

func headerOf(doc string) tree {
	return tree{"description": doc, "schema": tree{"type": "string"}}
}

func idParameter() tree {
	p := parameter("id", "path", "the entity's id, percent-encoded", tree{"type": "string", "minLength": 1, "maxLength": 256})
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
				"entityId": str, "sequence": str, "type": str, "json": tree{}, "data": str, "commandId": str,
				"recordedAt": tree{"type": "string", "format": "date-time"}, "moduleDigest": str,
				"tags": tree{"type": "array", "items": str},
			},
		},
	}
}
