package openapi

import (
	"net/url"

	"github.com/hostd/hostd/abi/manifest"
)

// runs writes the paths of the runs of a workflow type. input is the schema of
// their input.
func (w *apiWriter) runs(paths tree, t Type, input tree) {
	if t.Kind != manifest.Workflow {
		return
	}
	id := "/w/" + url.PathEscape(t.Name) + "/{id}"
	name := func(words ...string) string { return w.operation(append([]string{t.Name, "run"}, words...)...) }
	tags := []any{t.Name}
	key := []any{
		parameter("Idempotency-Key", "header", "id of the command; a retry with the same id has no second effect", tree{"type": "string", "maxLength": 128}),
		parameter("Hostd-First-Attempt-Age", "header", "time since the first attempt with this id, such as 1500ms, if its outcome is unknown", tree{"type": "string"}),
	}
	wait := parameter("wait", "query", "how long to wait for the end of the run, such as 30s", tree{"type": "string"})
	headers := tree{
		"ETag":             headerOf("sequence of the run, in quotes"),
		"Hostd-Run-Status": headerOf("running, completed or failed"),
	}
	run := func(more tree) tree {
		own := tree{
			"200": tree{"description": "The result of the run, which has completed.", "headers": headers, "content": content(t, tree{})},
			"202": tree{"description": "The run is still running.", "headers": headers, "content": tree{"application/json": tree{"schema": component("Run")}}},
			"204": tree{"description": "The run has completed without a result.", "headers": headers},
			"422": w.failure("The run has failed, or cannot be started; code and message are its own."),
		}
		for status, response := range more {
			own[status] = response
		}
		return w.responses(own)
	}
	none := tree{"description": "The command is durable."}
	command := func(summary, word string, body tree) tree {
		post := tree{
			"tags": tags, "operationId": name(word), "summary": summary, "parameters": key,
			"responses": w.responses(tree{"204": none, "409": w.failure("The run has ended, or the outcome of an earlier attempt is unknown.")}),
		}
		if body != nil {
			post["requestBody"] = body
		}
		return post
	}
	paths[id] = tree{
		"parameters": []any{idParameter()},
		"post": tree{
			"tags": tags, "operationId": name("start"), "summary": "Start a run, or get the one that has the same input",
			"parameters": append([]any{wait}, key...), "requestBody": body(t, input),
			"responses": run(tree{"409": w.failure("A run of this id has another input, or the outcome of an earlier attempt is unknown.")}),
		},
		"get": tree{
			"tags": tags, "operationId": name(), "summary": "Get the result of a run", "parameters": []any{wait}, "responses": run(nil),
		},
	}
	signal := parameter("name", "path", "name of the signal, percent-encoded", tree{"type": "string", "minLength": 1, "maxLength": 255})
	signal["required"] = true
	paths[id+"/signals/{name}"] = tree{"parameters": []any{idParameter(), signal}, "post": command("Send a signal to a run", "signal", body(t, tree{}))}
	paths[id+"/cancel"] = tree{"parameters": []any{idParameter()}, "post": command("Cancel a run", "cancel", nil)}
	paths[id+"/terminate"] = tree{"parameters": []any{idParameter()}, "post": command("Terminate a run", "terminate", nil)}
	paths[id+"/history"] = tree{"parameters": []any{idParameter()}, "get": tree{
		"tags": tags, "operationId": name("history"), "summary": "Get the events of a run",
		"parameters": []any{
			parameter("page_size", "query", "maximum number of commands whose events are on a page", tree{"type": "integer", "minimum": 0, "maximum": 500}),
			parameter("page_token", "query", "nextPageToken of the previous page", tree{"type": "string"}),
			parameter("newest_first", "query", "true: the newest event first", tree{"type": "boolean"}),
		},
		"responses": w.responses(tree{"200": tree{"description": "One page of events.", "content": tree{"application/json": tree{"schema": component("RunHistory")}}}}),
	}}
	w.components["Run"], w.components["RunHistory"] = runComponents()
}

// runComponents returns the schemas of a run and of a page of its history.
func runComponents() (run, history tree) {
	str, count := tree{"type": "string"}, tree{"type": "integer"}
	run = tree{
		"type": "object", "required": []any{"status", "steps", "sequence"}, "description": "A run that has not ended.",
		"properties": tree{
			"status": str, "steps": count, "waitsFor": tree{"type": "array", "items": str}, "startedAt": str, "updatedAt": str, "sequence": str,
			"quarantined": tree{"type": "boolean"}, "lastError": str,
		},
	}
	event := tree{
		"type": "object", "required": []any{"sequence", "eventType"},
		"properties": tree{"sequence": str, "eventType": str, "recordedAt": str, "payload": tree{}, "moduleDigest": str},
	}
	history = tree{
		"type": "object", "description": "A page of events.",
		"properties": tree{"events": tree{"type": "array", "items": event}, "nextPageToken": str},
	}
	return run, history
}
