package history

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strconv"
)

// state is the expected state of an example entity. It is comparable.
type state struct {
	sequence uint64
	balance  int64  // balance of an account, or total of a counter
	open     bool   // whether an account is open
	hash     string // hash of a chain: 32 bytes, or none before the first link
	over     bool   // the last query of the history has been answered
}

// event is the name and argument of an event, which determine the next state.
type event struct {
	name      string
	number    int64
	commandID string
}

// apply returns the state after an event.
func (s state) apply(entityType string, e event) (state, error) {
	s.sequence++
	switch entityType + "." + e.name {
	case "account.opened":
		s.open = true
	case "account.deposited", "counter.added":
		s.balance += e.number
	case "account.withdrawn":
		s.balance -= e.number
	case "counter.reset":
		s.balance = 0
	case "chain.linked":
		sum := sha256.Sum256(strconv.AppendInt([]byte(s.hash+e.commandID), e.number, 10))
		s.hash = string(sum[:])
	default:
		return s, fmt.Errorf("%s has no event %q", entityType, e.name)
	}
	return s, nil
}

// decide returns the event that a command must emit, if it must emit one, or
// the code with which it must be rejected.
func (s state) decide(entityType, command string, number int64) (emitted string, rejection string) {
	switch entityType + "." + command {
	case "account.open":
		if s.open {
			return "", ""
		}
		return "opened", ""
	case "account.deposit":
		return "deposited", ""
	case "account.withdraw":
		if number > s.balance {
			return "", "insufficient_funds"
		}
		return "withdrawn", ""
	case "counter.add":
		return "added", ""
	case "counter.reset":
		return "reset", ""
	case "chain.link":
		return "linked", ""
	}
	return "", "no such command"
}

// reply returns the reply of commands and queries in the state.
func (s state) reply(entityType string) string {
	switch entityType {
	case "account":
		return fmt.Sprintf(`{"balance":%d}`, s.balance)
	case "counter":
		return fmt.Sprintf(`{"total":%d}`, s.balance)
	}
	return fmt.Sprintf(`{"sequence":%d,"hash":"%x"}`, s.sequence, s.hash)
}

// parseEvent decodes the payload of an event.
func parseEvent(name string, data []byte) (event, error) {
	var content struct {
		Amount    int64  `json:"amount"`
		N         int64  `json:"n"`
		CommandID string `json:"commandId"`
	}
	if len(data) > 0 {
		if err := json.Unmarshal(data, &content); err != nil {
			return event{}, fmt.Errorf("event %s holds %q: %w", name, data, err)
		}
	}
	return event{name: name, number: content.Amount + content.N, commandID: content.CommandID}, nil
}
