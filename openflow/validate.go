// SPDX-License-Identifier: Apache-2.0

package openflow

// Validate reports what a switch would refuse. The error names the flow.
func (f *Flow) Validate() error { return f.Match.Validate() }
