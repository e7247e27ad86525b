// SPDX-License-Identifier: Apache-2.0

// Package names makes the names and label values of objects of coelan.io that follow from other
// names.
package names
