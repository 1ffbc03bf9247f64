package plainhttp

import (
	"encoding/base64"
	"encoding/json"
	"math"
	"net/http"
	"strconv"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/proto"

	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
)

// problem is the body of an error response.
type problem struct {
	// Code is the code of the API, such as not_found; for a rejection it is the
	// module's own code.
	Code    string `json:"code"`
	Message string `json:"message"`
	// Reason identifies the error for programs, such as INTERNAL_COMMAND.
	Reason string `json:"reason,omitempty"`
	// ActualSequence is the sequence of the entity if a different one was
	// expected.
	ActualSequence string `json:"actualSequence,omitempty"`
	// Violations are the mismatches between a payload and its schema.
	Violations []violation `json:"violations,omitempty"`
}

// reasonRunEnded is the reason of the error for a command to a run that has
// ended. Its HTTP status is 409 Conflict, because the request was valid.
const reasonRunEnded = "RUN_ENDED"

type violation struct {
	Field       string `json:"field"`
	Description string `json:"description"`
}

// fail writes an error response.
func fail(w http.ResponseWriter, status int, p problem) {
	body, err := json.Marshal(p)
	if err != nil {
		panic(err) // cannot happen: strings always encode
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n')) // an error means that the client has gone
}

// refusal writes the error for a request that cannot be converted to a call.
func refusal(w http.ResponseWriter, err error) {
	fail(w, http.StatusBadRequest, problem{Code: "invalid_argument", Message: err.Error()})
}

// writeError writes the error of a call from a Connect error with this status and
// body. If the body is not a Connect error, it is passed on unchanged.
func writeError(w http.ResponseWriter, status int, header http.Header, body []byte) {
	var wire wireError
	if err := json.Unmarshal(body, &wire); err != nil || wire.Code == "" {
		w.Header().Set("Content-Type", header.Get("Content-Type"))
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.WriteHeader(status)
		_, _ = w.Write(body)
		return
	}
	p, status, after := wire.problem(status)
	if auth := header.Get("Www-Authenticate"); auth != "" {
		w.Header().Set("Www-Authenticate", auth)
	}
	later(w, after)
	if p.ActualSequence != "" {
		w.Header().Set("ETag", `"`+p.ActualSequence+`"`)
	}
	fail(w, status, p)
}

// actualOf returns the actual sequence of the entity if the error is a sequence
// mismatch, and "" for any other error.
func actualOf(status int, body []byte) string {
	var wire wireError
	if json.Unmarshal(body, &wire) != nil {
		return ""
	}
	p, _, _ := wire.problem(status)
	return p.ActualSequence
}

// later sets Retry-After in seconds; 0 sets nothing.
func later(w http.ResponseWriter, after int) {
	if after > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(after))
	}
}

// wireError is the JSON form of a Connect error.
type wireError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	Details []struct {
		Type  string `json:"type"`
		Value string `json:"value"`
	} `json:"details"`
}

// write writes the error response of a stream that failed before its first
// message.
func (e *wireError) write(w http.ResponseWriter) {
	p, status, after := e.problem(statusOf(e.Code))
	later(w, after)
	fail(w, status, p)
}

// problem converts an error to plain HTTP. after is the number of seconds to
// wait before a retry, 0 if a retry is useless.
func (e wireError) problem(was int) (p problem, status, after int) {
	p, status = problem{Code: e.Code, Message: e.Message}, was
	if status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable {
		after = 1
	}
	for _, d := range e.Details {
		value, err := base64.RawStdEncoding.DecodeString(d.Value)
		if err != nil {
			continue
		}
		known := func(m proto.Message) bool {
			return d.Type == string(m.ProtoReflect().Descriptor().FullName()) && proto.Unmarshal(value, m) == nil
		}
		var rejection entityv1.Rejection
		var mismatch entityv1.SequenceMismatch
		var info errdetails.ErrorInfo
		var retry errdetails.RetryInfo
		var bad errdetails.BadRequest
		switch {
		case known(&rejection):
			p.Code, p.Message, status = rejection.GetCode(), rejection.GetMessage(), http.StatusUnprocessableEntity
		case known(&mismatch):
			p.ActualSequence, status = strconv.FormatUint(mismatch.GetActual(), 10), http.StatusPreconditionFailed
		case known(&info):
			if p.Reason = info.GetReason(); p.Reason == reasonRunEnded {
				status = http.StatusConflict
			}
		case known(&retry):
			after = max(1, int(math.Ceil(retry.GetRetryDelay().AsDuration().Seconds())))
		case known(&bad):
			for _, v := range bad.GetFieldViolations() {
				p.Violations = append(p.Violations, violation{v.GetField(), v.GetDescription()})
			}
		}
	}
	return p, status, after
}
