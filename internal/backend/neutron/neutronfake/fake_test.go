// SPDX-License-Identifier: Apache-2.0

package neutronfake

import "testing"

func TestCases(t *testing.T) { Check(t, Start(t).URL+"/") }
