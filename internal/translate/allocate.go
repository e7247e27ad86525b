// SPDX-License-Identifier: Apache-2.0

package translate

import "fmt"

// Range is of numbers, both ends included.
type Range struct{ First, Last int32 }

// String is first-last.
func (r Range) String() string { return fmt.Sprintf("%d-%d", r.First, r.Last) }

// DefaultVNIs leave the numbers below to users' networks.
var DefaultVNIs = Range{First: 70000, Last: 1<<24 - 1}
