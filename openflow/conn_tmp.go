// SPDX-License-Identifier: Apache-2.0

package openflow

import "fmt"

// Error says what the switch refused.
func (e *Error) Error() string { return fmt.Sprintf("error type %d code %d", e.Type, e.Code) }
