// Breaking is a version of the example payout with which open runs cannot
// continue, because it deposits less than it withdraws.
package main

import hostd "github.com/hostd/hostd/guest-sdk/go"

// Input of a run.
type Input struct {
	From   string   `json:"from" hostd:"required"`
	To     []string `json:"to" hostd:"required"`
	Amount int64    `json:"amount" hostd:"required,min=1"`
	// Approve makes the run wait for the signal "approval".
	Approve bool `json:"approve,omitempty"`
	// PauseMillis is the pause between two payments.
	PauseMillis int64 `json:"pauseMillis,omitempty"`
}

// Approval is the value of the signal "approval".
type Approval struct {
	By string `json:"by"`
}

// Receipt is the result of a run.
type Receipt struct {
	Paid     int64    `json:"paid"`
	Returned int64    `json:"returned"`
	Refused  []string `json:"refused,omitempty"`
	By       string   `json:"by,omitempty"`
}

// Move is the payload of the commands of accounts.
type Move struct {
	Amount     int64 `json:"amount"`
	MustBeOpen bool  `json:"mustBeOpen,omitempty"`
}

// Balance is the reply of accounts.
type Balance struct {
	Balance int64 `json:"balance"`
}

func payout(f *hostd.Flow, in Input) (Receipt, error) {
	var out Receipt
	if in.Approve {
		approval, err := hostd.Wait[Approval](f, "approval", hostd.Within(24*hostd.Hour))
		if err != nil {
			return out, err
		}
		out.By = approval.By
	}
	for _, to := range in.To {
		if f.Cancelled() {
			break // the receipt has the payments that were made
		}
		if _, err := hostd.Call[Balance](f, "account", in.From, "withdraw", Move{Amount: in.Amount}, hostd.NonCancellable()); err != nil {
			return out, err
		}
		_, err := hostd.Call[Balance](f, "account", to, "deposit", Move{in.Amount - 1, true}, hostd.Retry(3, hostd.Second, hostd.Minute), hostd.NonCancellable())
		if err != nil {
			out.Refused = append(out.Refused, to)
			if _, err := hostd.Call[Balance](f, "account", in.From, "deposit", Move{Amount: in.Amount}, hostd.NonCancellable()); err != nil {
				return out, err
			}
			out.Returned += in.Amount
			continue
		}
		out.Paid += in.Amount
		if in.PauseMillis > 0 {
			if err := f.Sleep(hostd.Duration(in.PauseMillis) * hostd.Millisecond); err != nil {
				break
			}
		}
	}
	return out, nil
}

var _ = hostd.Serve("payout", "2.0.0", hostd.Workflow("payout", payout, hostd.Sends("account")))

func main() {}
