package edge_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/structpb"

	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	"github.com/hostd/hostd/api/jsonvalue"
	"github.com/hostd/hostd/host/edge"
)

// TestEveryEndpointReadsSameJSON sends the corner cases of package jsontext on
// each way into the API: the module gets the canonical text of each, the caller
// gets the same text back, and all ways reject the same texts.
func TestEveryEndpointReadsSameJSON(t *testing.T) {
	s := serve(t, edge.Options{})
	member := func(t *testing.T, body string) (string, bool) {
		var answer struct{ JSON json.RawMessage }
		if err := json.Unmarshal([]byte(body), &answer); err != nil {
			t.Error(err)
		}
		return string(answer.JSON), true
	}
	isRefused := func(t *testing.T, status int, body string) {
		if status != 400 || !strings.Contains(body, `"invalid_argument"`) {
			t.Errorf("refused with %d %s", status, body)
		}
	}
	doors := map[string]func(t *testing.T, text string) (string, bool){
		"the member json of Send": func(t *testing.T, text string) (string, bool) {
			status, body := s.post(t, entityPath+"SendCommand", `{"entityType":"counter","entityId":"a","command":"echo","json":`+text+`}`)
			if status != 200 {
				isRefused(t, status, body)
				return "", false
			}
			return member(t, body)
		},
		"the member json of Query": func(t *testing.T, text string) (string, bool) {
			status, body := s.post(t, entityPath+"QueryEntity", `{"json":`+text+`,"entity_type":"counter","entityId":"a","query":"echo"}`)
			if status != 200 {
				isRefused(t, status, body)
				return "", false
			}
			return member(t, body)
		},
		"the member data of Send": func(t *testing.T, text string) (string, bool) {
			status, body := s.post(t, entityPath+"SendCommand", `{"entityType":"counter","entityId":"a","command":"echo","data":"`+b64(text)+`"}`)
			if status != 200 {
				isRefused(t, status, body)
				return "", false
			}
			var answer struct{ Data []byte }
			if err := json.Unmarshal([]byte(body), &answer); err != nil {
				t.Error(err)
			}
			return string(answer.Data), true
		},
		"a command by plain HTTP": func(t *testing.T, text string) (string, bool) {
			status, body := s.post(t, "/e/counter/a/echo", text)
			if status != 200 {
				isRefused(t, status, body)
			}
			return body, status == 200
		},
		"a query by plain HTTP": func(t *testing.T, text string) (string, bool) {
			status, body := s.get(t, "/e/counter/a/q/echo?payload="+url.QueryEscape(text))
			if status != 200 {
				isRefused(t, status, body)
			}
			return body, status == 200
		},
		"SendCommandStream in JSON": func(t *testing.T, text string) (string, bool) {
			answer := s.sendInJSON(t, `{"requests":[{"correlationId":"1","request":{"entityType":"counter","entityId":"a","command":"echo","json":`+text+`}}]}`)
			if answer.Error != nil {
				if answer.Error.Code != "invalid_argument" {
					t.Error(answer.Error)
				}
				return "", false
			}
			if len(answer.Responses) != 1 {
				t.Fatalf("%+v", answer)
			}
			return string(answer.Responses[0].Response.JSON), true
		},
		"a binary client with package jsonvalue": func(t *testing.T, text string) (string, bool) {
			v, err := jsonvalue.Parse([]byte(text))
			if err != nil {
				return "", false
			}
			res, err := s.entities().QueryEntity(t.Context(), connect.NewRequest(&entityv1.QueryEntityRequest{EntityType: "counter", EntityId: "a", Query: "echo", Payload: &entityv1.QueryEntityRequest_Json{Json: v}}))
			if err != nil {
				t.Error(err)
				return "", false
			}
			out, err := jsonvalue.Append(nil, res.Msg.GetJson())
			if err != nil {
				t.Error(err)
			}
			return string(out), true
		},
	}
	cases, err := os.ReadFile("../../abi/jsontext/testdata/cases.txt")
	if err != nil {
		t.Fatal(err)
	}
	for name, door := range doors {
		t.Run(name, func(t *testing.T) {
			for line := range strings.Lines(string(cases)) {
				in, want, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " => ")
				if !ok {
					continue
				}
				got, taken := door(t, in)
				switch {
				case !taken && want != "refused":
					t.Errorf("%s is refused", in)
				case taken && want == "refused":
					t.Errorf("%s became %s", in, got)
				case taken && !sameJSON(t, got, want):
					t.Errorf("%s became %s, want %s", in, got, want)
				}
			}
		})
	}
}

// sameJSON compares JSON texts that may differ in spacing; all digits of numbers
// count.
func sameJSON(t *testing.T, got, want string) bool {
	decode := func(text string) string {
		d := json.NewDecoder(strings.NewReader(text))
		d.UseNumber()
		var v any
		if err := d.Decode(&v); err != nil {
			t.Errorf("%v: %s", err, text)
		}
		out, err := json.Marshal(v)
		if err != nil {
			t.Error(err)
		}
		return string(out)
	}
	return got == want || decode(got) == decode(want)
}

// streamed is a message of SendCommandStream's answers, or the end of the stream.
type streamed struct {
	Responses []struct {
		Response struct{ JSON json.RawMessage }
	}
	Error *struct{ Code, Message string }
}

// sendInJSON sends one message of SendCommandStream and returns the first answer.
func (s *site) sendInJSON(t *testing.T, text string) (out streamed) {
	t.Helper()
	body := append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(text))), text...)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+entityPath+"SendCommandStream", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/connect+json")
	res, err := s.h2.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err != nil || len(answer) < 5 {
		t.Fatalf("%q, %v", answer, err)
	}
	answer = answer[5 : 5+binary.BigEndian.Uint32(answer[1:])]
	if err := json.Unmarshal(answer, &out); err != nil {
		t.Fatalf("%v: %s", err, answer)
	}
	return out
}

// TestBinaryClientReadsLargeIntegersAsText: a binary client that only knows
// google.protobuf.Value gets an integer beyond 2^53 as a string of digits, and a
// double that it sends is taken as the integer that the double represents.
func TestBinaryClientReadsLargeIntegersAsText(t *testing.T) {
	s := serve(t, edge.Options{})
	v, err := jsonvalue.Parse([]byte(`{"n":1234567890123456789}`))
	if err != nil {
		t.Fatal(err)
	}
	if text := v.GetStructValue().GetFields()["n"].GetStringValue(); text != "1234567890123456789" {
		t.Errorf("the digits are %q", text)
	}
	for double, want := range map[float64]string{1 << 60: "1152921504606846976", -1 << 63: "-9223372036854775808", 5: "5", 0.5: "0.5", 1e300: "1e+300"} {
		res, err := s.entities().SendCommand(t.Context(), connect.NewRequest(&entityv1.SendCommandRequest{EntityType: "counter", EntityId: "a", Command: "echo", Payload: &entityv1.SendCommandRequest_Json{Json: structpb.NewNumberValue(double)}}))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := jsonvalue.Append(nil, res.Msg.GetJson()); err != nil || string(got) != want {
			t.Errorf("%g became %s, %v, want %s", double, got, err, want)
		}
	}
}
