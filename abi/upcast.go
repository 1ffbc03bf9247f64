package abi

import "errors"

// UpcastEvent decodes the result of hostd_upcast for one event: one event
// frame, with a valid type, and a payload of at most maxPayload bytes. Both
// results are sub-slices of frames. The error unwraps to ErrMalformed.
func UpcastEvent(frames []byte, maxPayload int) (eventType, payload []byte, err error) {
	r := NewReader(frames)
	frame, some, err := r.Next()
	switch {
	case err != nil:
		return nil, nil, err
	case !some:
		return nil, nil, r.fault(0, "there is no event")
	case frame.Kind != OutEvent:
		return nil, nil, r.fault(frame.Kind, "is not an event")
	}
	eventType, payload, ok := cutField(frame.Body)
	if !ok {
		return nil, nil, r.fault(frame.Kind, errShort.reason)
	}
	if err := ValidateName("event type", string(eventType)); err != nil {
		return nil, nil, errors.Join(r.fault(frame.Kind, "its type is not a valid name"), err)
	}
	if len(payload) > maxPayload {
		return nil, nil, r.fault(frame.Kind, "its payload is too large")
	}
	if r.offset != len(frames) {
		return nil, nil, r.fault(0, "there is more than one event")
	}
	return eventType, payload, nil
}
