// SPDX-License-Identifier: Apache-2.0

package openflow

import "fmt"

// MessageError says which of several messages a switch refused, or could not be
// sent to it.
type MessageError struct {
	Index   int // of the message among those to send
	Message Message
	Err     error // *Error if the switch refused it
}

func (e *MessageError) Error() string {
	return fmt.Sprintf("openflow: message %d refused: %v", e.Index, e.Err)
}

func (e *MessageError) Unwrap() error { return e.Err }
