package abi_test

import (
	"fmt"
	"log"

	"github.com/hostd/hostd/abi"
)

// A host encodes a command as frames, a guest decodes them, decides, and
// answers with frames, which the host checks against its limits.
func Example() {
	input := abi.AppendSequence(nil, 7)
	input = abi.AppendName(input, "add")
	input = abi.AppendPayload(input, []byte(`{"amount":3}`))
	input = abi.AppendCommandID(input, "order-4711")

	var request abi.Request // in the guest
	if err := abi.ParseRequest(&request, input); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s %s after event %d\n", request.Name, request.Payload, request.Sequence)
	frames := abi.AppendEvent(nil, "added", request.Payload)
	frames = abi.AppendReply(frames, []byte(`{"total":10}`))

	var out abi.Output // in the host
	limits := abi.DefaultLimits()
	if err := abi.ParseOutput(&out, frames, abi.HandleEvents, &limits); err != nil {
		log.Fatal(err)
	}
	for _, e := range out.Events {
		fmt.Printf("event %s %s\n", e.Type, e.Payload)
	}
	fmt.Printf("reply %s\n", out.Reply)
	// Output:
	// add {"amount":3} after event 7
	// event added {"amount":3}
	// reply {"total":10}
}

// A rejection is the only effect of the call.
func ExampleAppendReject() {
	frames := abi.AppendReject(nil, "zero", "nothing to add")

	var out abi.Output
	limits := abi.DefaultLimits()
	if err := abi.ParseOutput(&out, frames, abi.HandleEvents, &limits); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%t: %s, %s\n", out.Rejected, out.Reject.Code, out.Reject.Message)
	// Output: true: zero, nothing to add
}

// A Reader skips nothing: a guest uses it for frames that it does not know.
func ExampleReader() {
	reader := abi.NewReader(abi.AppendNow(abi.AppendName(nil, "add"), 1_700_000_000_000_000_000))
	for {
		frame, ok, err := reader.Next()
		if err != nil {
			log.Fatal(err)
		}
		if !ok {
			break
		}
		fmt.Printf("kind %d with %d bytes\n", frame.Kind, len(frame.Body))
	}
	// Output:
	// kind 16 with 3 bytes
	// kind 19 with 8 bytes
}
