// SPDX-License-Identifier: Apache-2.0

//go:build !race

package lab

// raceEnabled says that the test itself was built with the race detector.
const raceEnabled = false
