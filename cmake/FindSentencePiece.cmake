# Finds SentencePiece, which has no CMake package of its own: SentencePiece::sentencepiece (with the trainer).
find_path(SentencePiece_INCLUDE_DIR sentencepiece_trainer.h)
find_library(SentencePiece_LIBRARY sentencepiece)
find_library(SentencePiece_TRAIN_LIBRARY sentencepiece_train)
find_package(PkgConfig QUIET)
if(PkgConfig_FOUND)
  pkg_check_modules(SentencePiece_PC QUIET sentencepiece)
endif()
set(SentencePiece_VERSION "${SentencePiece_PC_VERSION}")
if(NOT SentencePiece_VERSION)
  set(SentencePiece_VERSION "unknown")
endif()
mark_as_advanced(SentencePiece_INCLUDE_DIR SentencePiece_LIBRARY SentencePiece_TRAIN_LIBRARY)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(SentencePiece REQUIRED_VARS SentencePiece_LIBRARY SentencePiece_TRAIN_LIBRARY
                                                              SentencePiece_INCLUDE_DIR)
if(SentencePiece_FOUND AND NOT TARGET SentencePiece::sentencepiece)
  add_library(SentencePiece::sentencepiece INTERFACE IMPORTED)
  set_target_properties(SentencePiece::sentencepiece PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "${SentencePiece_INCLUDE_DIR}"
    INTERFACE_LINK_LIBRARIES "${SentencePiece_TRAIN_LIBRARY};${SentencePiece_LIBRARY}")
endif()
